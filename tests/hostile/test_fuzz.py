"""Whatever a file holds: a value or an error of ours, soon, in little memory."""

from __future__ import annotations

import importlib.util
import os
import resource
import tempfile
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mutations import changed
from readers import FIXTURES, Reader, readers

from workbench.errors import WorkbenchError

FOUND = FIXTURES / "fuzz"
READERS = {reader.name: reader for reader in readers()}
SLOWEST_S = 10.0
"""One input of some kilobytes; a machine that stalls gets the benefit of the doubt."""
MOST_MIB = 512
LEFT = os.environ.get("WORKBENCH_FUZZ_LEFT")
"""A folder for inputs that broke something: what is mended goes from there into tests/fixtures/fuzz/<reader>."""


def has(reader: Reader) -> bool:
    return reader.needs is None or importlib.util.find_spec(reader.needs) is not None


def read(reader: Reader, data: bytes) -> None:
    """Read it, and hold it to its time."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            reader.read(data, Path(folder))
        except WorkbenchError as error:
            assert error.what
            str(error).encode("utf-8", "backslashreplace")
    assert time.process_time() - began < SLOWEST_S


_BATCH = 20


def fuzz(reader: Reader, examples: int, *, seconds: float | None = None, derandomize: bool = False) -> int:
    """So many changed inputs, or as many as there is time for; how many there were."""
    count = 0

    @settings(
        # Hypothesis wants each call to draw alike, so that time can only end a batch.
        max_examples=examples if seconds is None else min(examples, _BATCH),
        derandomize=derandomize,
        database=None,
        phases=(Phase.generate,),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        nonlocal count
        seed = data.draw(st.sampled_from(reader.seeds()))
        count += 1
        given_bytes = data.draw(changed(seed, reader.kind))
        try:
            read(reader, given_bytes)
        except BaseException:
            if LEFT:
                Path(LEFT, f"{reader.name}-{zlib.crc32(given_bytes):08x}").write_bytes(given_bytes)
            raise

    before, began = _peak_mib(), time.monotonic()
    one()
    while seconds is not None and time.monotonic() < began + seconds and count < examples:
        one()
    assert _peak_mib() - before < MOST_MIB
    return count


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.fixture
def reader(request: pytest.FixtureRequest) -> Reader:
    found = READERS[request.param]
    if not has(found):
        pytest.skip(f"{found.needs} is not installed")
    return found


every_reader = pytest.mark.parametrize("reader", READERS, indirect=True)


@every_reader
def test_what_was_recorded_is_read_without_an_error(reader: Reader, tmp_path: Path) -> None:
    """Else the changed inputs would be refused at the door, and nothing behind it be tried."""
    for number, seed in enumerate(reader.seeds()):
        folder = tmp_path / str(number)
        folder.mkdir()
        reader.read(seed, folder)


@every_reader
def test_a_few_changed_inputs(reader: Reader) -> None:
    # A run folder is read with all its tables, a hundred times as long as one file.
    fuzz(reader, 2 if reader.name.startswith("run_folder") else 8, derandomize=True)


@every_reader
def test_what_was_found_once(reader: Reader) -> None:
    for path in sorted((FOUND / reader.name).glob("*")):
        read(reader, path.read_bytes())


def test_every_input_that_was_found_has_a_reader() -> None:
    assert {path.name for path in FOUND.iterdir() if path.is_dir()} <= set(READERS)


@pytest.mark.slow
@every_reader
def test_many_changed_inputs(reader: Reader) -> None:
    # As above, a run folder takes a hundred times as long; `make soak` gives each as long as it is told to.
    fuzz(reader, 20 if reader.name.startswith("run_folder") else 150)
