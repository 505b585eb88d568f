"""Small files that mean large ones, and files that are no files."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from bounded import bounded
from model_folders import CONFIG, write_folder
from readers import ORDER, STUDY, TRAINING, campaign_files, write_campaign_files

from workbench import files, store
from workbench.checkpoint import read_checkpoint
from workbench.errors import CheckpointError, InputError, LogError, Problem, SpecError, WorkbenchError
from workbench.index import build_index
from workbench.load import wire
from workbench.load.answer import MOST_BYTES, AnswerFault, EventReader
from workbench.plain import from_json, from_yaml
from workbench.prompts import prompt_set
from workbench.sweep import expand, find_campaign, parse_campaign
from workbench.table import load_tables
from workbench.trained import read_record
from workbench.training.config import read_config
from workbench.training.study import read_study

GIB = 1 << 30
_MEMORY = 600  # MiB of address space: pandas and its libraries take two thirds of it


def gzip_bomb(path: Path, size: int, unit: bytes) -> Path:
    """A gzip file of about ``size`` bytes of text: one small gzip file, many times."""
    block = unit * ((1 << 20) // len(unit))
    path.write_bytes(gzip.compress(block) * (size // len(block)))
    return path


# --- gzip --------------------------------------------------------------------------------------------------------


def test_a_log_that_unpacks_to_far_more_than_text_does_is_left_early(tmp_path: Path) -> None:
    bomb = gzip_bomb(tmp_path / "server.log.gz", GIB, b"\x00")
    assert bomb.stat().st_size < 2 << 20
    problems: list[Problem] = []
    size = sum(len(chunk) for chunk in files.read_chunks(bomb, problems))
    assert size <= 64 << 20
    assert (
        problems[0].what
        == f"the gzip file unpacks to more than 200 times its size: only the first {size:,} bytes of its text are used"
    )
    with pytest.raises(LogError, match="200 times its size"):
        for _ in files.read_chunks(bomb):
            pass


def test_text_that_packs_well_is_read_whole(tmp_path: Path) -> None:
    """The recorded logs pack to a tenth; lines that only differ in a counter to a hundredth."""
    path = tmp_path / "a.log.gz"
    text = b"".join(
        b"[2026-01-05 10:00:00 TP0] Decode batch, #running-req: 1, #token: %d\n" % n for n in range(200_000)
    )
    path.write_bytes(gzip.compress(text))
    assert len(text) > 20 * path.stat().st_size / 2
    assert b"".join(files.read_chunks(path)) == text


@pytest.mark.slow
@pytest.mark.parametrize("unit", [b"\x00", b"Decode batch, #running-req: 1\n"], ids=["zeros", "lines"])
def test_ten_gigabytes_in_ten_megabytes(tmp_path: Path, unit: bytes) -> None:
    bomb = gzip_bomb(tmp_path / "server.log.gz", 10 * GIB, unit)
    assert bomb.stat().st_size < 50 << 20
    code = "import sys; from workbench.cli import main; print(main(['parse', sys.argv[1], '--out', sys.argv[2]]))"
    said = bounded(code, bomb, tmp_path / "out.csv", mib=2500, seconds=200)
    assert said.split()[-1] in ("0", "1", "3")


@pytest.mark.parametrize("name", ["metrics.after.prom", "requests.jsonl", "gpu.jsonl"])
def test_a_bomb_in_a_run_folder_is_one_problem_and_the_rest_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = write_campaign_files(tmp_path / "c")
    (campaign / "run" / name).unlink()
    gzip_bomb(campaign / "run" / f"{name}.gz", 100 << 20, b"{}\n" if name != "metrics.after.prom" else b"# x\n")
    monkeypatch.setattr(store, "MOST_RECORDS", 20_000)
    tables = load_tables(campaign)
    assert len(tables.runs) == 2
    said = [problem.what for problem in tables.problems if name in problem.where]
    assert any("20,000 lines" in what or "Larger than" in what for what in said), tables.problems


def test_a_bomb_of_prompts(tmp_path: Path) -> None:
    bomb = gzip_bomb(tmp_path / "p.jsonl.gz", 100 << 20, b" ")
    with pytest.raises(InputError, match="Larger than 67,108,864 bytes"):
        prompt_set(bomb)


# --- long lines, deep nesting ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_line_of_a_gigabyte() -> None:
    """From standard input, so that it lies nowhere."""
    code = (
        "import os, sys, threading, resource\n"
        "from workbench.parse.server_log import parse_log\n"
        "from workbench.files import read_chunks\n"
        "out, into = os.pipe()\n"
        "def write():\n"
        "    for n in range(1024): os.write(into, b'x' * (1 << 20))\n"
        "    os.write(into, b'\\nDecode batch, #running-req: 1, #token: 5, gen throughput (token/s): 9.5\\n')\n"
        "    os.close(into)\n"
        "threading.Thread(target=write).start()\n"
        "log = parse_log(read_chunks(f'/dev/fd/{out}'))\n"
        "print(log.counts.overlong_lines, len(log.decode), log.counts.bytes)\n"
    )
    overlong, decoded, size = bounded(code, mib=400, seconds=120).split()
    assert (int(overlong), int(decoded)) == (1, 1)
    assert int(size) > GIB


DEEP = "[" * 100_000 + "]" * 100_000
DEEP_OBJECT = '{"a":' * 100_000 + "1" + "}" * 100_000


@pytest.mark.parametrize("text", [DEEP, DEEP_OBJECT, "[" * 100_000])
def test_deep_json_is_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        from_json(text)


@pytest.mark.parametrize("place", sorted(campaign_files()))
def test_deep_json_in_a_run_folder(tmp_path: Path, place: str) -> None:
    text = DEEP if place.startswith("run/") else DEEP_OBJECT
    campaign = write_campaign_files(tmp_path / "c", **{place: text.encode()})
    try:
        tables = load_tables(campaign)
    except InputError:
        assert place == "campaign.json"
        return
    assert len(tables.runs) >= 1


@pytest.mark.parametrize("text", [DEEP, DEEP_OBJECT])
def test_deep_json_elsewhere(tmp_path: Path, text: str) -> None:
    write_folder(tmp_path, CONFIG)
    for name in ("config.json", "training.json", "p.jsonl", "a.summary.json", "model.safetensors.index.json"):
        (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path)
    for read in (lambda: read_record(tmp_path), lambda: prompt_set(tmp_path / "p.jsonl")):
        with pytest.raises(InputError):
            read()
    (tmp_path / "a.html").touch()
    assert "summary cannot be read" in build_index(tmp_path).read_text()


# --- YAML --------------------------------------------------------------------------------------------------------

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
GROWING = {
    "laughs": LAUGHS,
    "itself": "a: &a [*a]\n",
    "deep": DEEP,
    "deep blocks": "- " * 20_000,
    "long": "- a\n" * 200_000,
}


@pytest.mark.parametrize("text", GROWING.values(), ids=GROWING)
def test_yaml_that_grows_is_refused_everywhere(tmp_path: Path, text: str) -> None:
    from workbench.specforge.order import read_order
    from workbench.specforge.traps import is_run_file, read_run

    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"alias|nested|longer"):
        from_yaml(text)
    for read in (find_campaign, read_config, read_study, read_order, read_run):
        with pytest.raises(SpecError, match=r"alias|nested|longer"):
            read(path if read is not find_campaign else str(path))  # type: ignore[operator]
    assert not is_run_file(path)


@pytest.mark.parametrize(
    "text", ["!!int ''", "!!bool x", "!!timestamp x", "!!timestamp 2026-13-45", "9" * 5000, "!!python/name:os.system"]
)
def test_values_that_yaml_itself_stumbles_over(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_yaml(text)
    with pytest.raises(SpecError, match="not YAML"):
        parse_campaign(f"name: {text}\n", name="c.yaml")
    for name, content in (("t.yaml", TRAINING), ("s.yaml", STUDY), ("o.yaml", ORDER)):
        (tmp_path / name).write_bytes(content)
    for read in (
        lambda: read_config(tmp_path / "t.yaml", [f"seed={text}"]),
        lambda: read_study(tmp_path / "s.yaml", [f"seed={text}"]),
    ):
        with pytest.raises(SpecError, match="--set seed"):
            read()


def test_lists_that_multiply_are_not_multiplied(tmp_path: Path) -> None:
    sixty = list(range(1, 61))
    sweep = {"speculative_num_steps": sixty, "speculative_eagle_topk": sixty, "speculative_num_draft_tokens": sixty}
    sweep["simulated_accept_length"] = sixty
    campaign = {"name": "c", "title": "t", "target": {"name": "T"}, "sweep": [sweep]}
    campaign["workload"] = {"prompt_set": "gsm8k", "num_prompts": 1, "max_new_tokens": 1}
    with pytest.raises(SpecError, match=r"12,960,000 points, and at most 5,000"):
        expand(parse_campaign(json.dumps(campaign), name="c"))
    keys = ("seed", "subset_seed", "split_seed", "held_out", "passes", "max_tokens")
    many = {key: list(range(16)) for key in keys}
    (tmp_path / "s.yaml").write_text(TRAINING.decode() + "".join(f"{key}: {value}\n" for key, value in many.items()))
    with pytest.raises(SpecError, match="16,777,216 drafters, and at most 1,000"):
        read_study(tmp_path / "s.yaml")


# --- what a server sends -----------------------------------------------------------------------------------------


def test_a_stream_without_an_end_of_line_is_left() -> None:
    reader = EventReader(64)
    with pytest.raises(AnswerFault, match="a line of more than 67,108,864 bytes"):
        for _ in range(MOST_BYTES // (4 << 20) + 1):
            reader.feed(b"data: " + b"x" * (4 << 20), 0.0)


def test_a_body_without_an_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"x" * 1000)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(wire, "MOST_BYTES", 100_000)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        status, said = wire.fetch(f"http://127.0.0.1:{server.server_port}/metrics")
    finally:
        server.shutdown()
        server.server_close()
    assert (status, said) == (0, "ClientPayloadError: more than 100,000 bytes")


# --- links, pipes, folders ---------------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def outside(path: Path) -> None:
    secret = next(parent for parent in path.parents if parent.name == "data") / "secret"
    secret.write_text('{"name": "secret"}')
    path.symlink_to(secret)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def door(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path may have 100 characters
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


NO_FILES = (pipe, folder, loop, outside, endless, door)
SOME_PLACES = ("run/spec.json", "run/requests.jsonl", "_servers/s/server.log")
CASES = [(place, put) for put in NO_FILES for place in SOME_PLACES]
CASES += [(place, outside) for place in sorted(campaign_files()) if place not in SOME_PLACES]


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Path]:
    yield write_campaign_files(tmp_path / "data" / "c")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("place", "put"), CASES)
def test_what_is_no_file_of_the_campaign_is_not_opened(campaign: Path, place: str, put: Callable[[Path], None]) -> None:
    (campaign / place).unlink()
    put(campaign / place)
    try:
        tables = load_tables(campaign)
    except InputError as error:
        assert place == "campaign.json", error
        return
    assert "secret" not in "".join(table.to_csv() for table in (tables.runs, tables.drafters, tables.requests))
    said = [problem for problem in tables.problems if place.rpartition("/")[2] in f"{problem.where} {problem.what}"]
    assert said, place


@pytest.mark.timeout(30)
@pytest.mark.parametrize("put", [pipe, folder, loop, endless, door])
def test_what_is_no_file_elsewhere(tmp_path: Path, put: Callable[[Path], None]) -> None:
    at = tmp_path / "in" / "side"
    write_folder(at, CONFIG)
    for name in ("c.yaml", "p.jsonl", "training.json", "a.summary.json", "model.safetensors"):
        put(at / name)
    (at / "a.html").touch()
    build_index(at)
    reads: tuple[Callable[[], object], ...] = (
        lambda: find_campaign(str(at / "c.yaml")),
        lambda: read_config(at / "c.yaml"),
        lambda: read_study(at / "c.yaml"),
        lambda: prompt_set(at / "p.jsonl"),
        lambda: read_record(at),
        lambda: read_checkpoint(at),
    )
    for read in reads:
        with pytest.raises(WorkbenchError):
            read()


def test_a_header_that_claims_more_than_the_file(tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIG)
    for length in (2**63, 2**64 - 1, 1 << 40):
        (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
        with pytest.raises(CheckpointError):
            read_checkpoint(tmp_path)
