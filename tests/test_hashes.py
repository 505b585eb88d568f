"""Hashes of folders: of their content, and without reading again what is as it was. Ids of checkpoints."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from model_folders import CONFIG, Tensor, draft_tensors, ones, write_folder

from workbench import hashes
from workbench.hashes import hash_folder, weights_id
from workbench.paths import ROOT_ENV


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a project with more files than are hashed without a second thought."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    found = tmp_path / "data" / "runs" / "c"
    for number in range(hashes._FEW_FILES + 1):
        path = found / f"r{number}" / "spec.json"
        path.parent.mkdir(parents=True)
        path.write_text(str(number))
        os.utime(path, (time.time() - 60, time.time() - 60))
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read."""
    names: list[Path] = []
    real = hashes.hash_file
    monkeypatch.setattr(hashes, "hash_file", lambda path: names.append(path) or real(path))
    return names


def test_only_what_changed_is_read_again(folder: Path, read: list[Path]) -> None:
    first = hash_folder(folder)
    read.clear()
    assert hash_folder(folder) == first
    assert read == []
    (folder / "r7" / "spec.json").write_text("other")
    changed = hash_folder(folder)
    assert changed != first
    assert read == [folder / "r7" / "spec.json"]
    # It changed just now: it may change again and look the same.
    read.clear()
    assert hash_folder(folder) == changed
    assert read == [folder / "r7" / "spec.json"]


def test_the_hash_is_that_of_the_content(folder: Path, tmp_path: Path) -> None:
    first = hash_folder(folder)
    hash_folder(folder)
    for path in (tmp_path / "reports" / ".cache" / "hashes").iterdir():
        path.write_bytes(b"not JSON")
    assert hash_folder(folder) == first
    (folder / "r0" / "spec.json").rename(folder / "r0" / "other.json")
    assert hash_folder(folder) != first


def test_what_is_left_out_does_not_count(folder: Path) -> None:
    first = hash_folder(folder, without={"_lock"})
    (folder / "_lock").write_text("held")
    assert hash_folder(folder, without={"_lock"}) == first
    assert hash_folder(folder) != first


# --- checkpoints -------------------------------------------------------------------------------------------------

LONG = 40_000
"""Bytes of a tensor that is read in part: 16,384 from its middle."""


def long_tensors(count: int) -> dict[str, Tensor]:
    return {f"t{number:02}": ("I8", (LONG,), bytes(LONG)) for number in range(count)}


def changed_at(path: Path, place: int) -> str | None:
    """The id with one byte of the file another one, counted from its end where negative; the byte is put back."""
    whole = path.read_bytes()
    other = bytearray(whole)
    other[place] ^= 1
    path.write_bytes(other)
    found = weights_id(path.parent)
    path.write_bytes(whole)
    return found


def test_the_id_of_a_checkpoint_is_that_of_its_config_its_names_and_a_sample(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": 1}, {"t": ("I8", (4,), b"\x01\x02\x03\x04")}, name="m.safetensors")
    header = b'{"__metadata__": {"format": "pt"}, "t": {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}}'
    header += b" " * (-len(header) % 8)
    file = len(header).to_bytes(8, "little") + header + b"\x01\x02\x03\x04"
    assert (tmp_path / "m.safetensors").read_bytes() == file
    # Its beginning and its end are all of so small a file, and so is the middle of its tensor.
    read = b'{"a": 1}' + f"\0m.safetensors\0{len(file)}\0".encode() + file + b"\x01\x02\x03\x04" + file
    assert weights_id(tmp_path) == hashlib.sha256(read).hexdigest()[:16]


def test_equal_bytes_have_an_equal_id_wherever_and_whenever_they_were_written(tmp_path: Path) -> None:
    one = write_folder(tmp_path / "one", CONFIG, draft_tensors())
    other = write_folder(tmp_path / "other", CONFIG, draft_tensors())
    os.utime(other / "model.safetensors", (0, 0))
    (other / "README.md").write_text("a card")
    assert weights_id(one) == weights_id(other) is not None


def test_each_tensor_of_a_drafter_is_looked_into(tmp_path: Path) -> None:
    path = write_folder(tmp_path, CONFIG, long_tensors(20)) / "model.safetensors"
    before, end = weights_id(tmp_path), path.stat().st_size
    data = end - 20 * LONG
    for number in range(20):
        assert changed_at(path, data + number * LONG + LONG // 2) != before
    assert before not in (changed_at(path, 8), changed_at(path, data), changed_at(path, end - 1))
    # It is a sample: the first byte of the second tensor is not read.
    assert changed_at(path, data + LONG) == before


def test_of_many_tensors_at_most_32_are_looked_into(tmp_path: Path) -> None:
    path = write_folder(tmp_path, CONFIG, long_tensors(65)) / "model.safetensors"
    before, data = weights_id(tmp_path), path.stat().st_size - 65 * LONG
    middles = [data + number * LONG + LONG // 2 for number in range(65)]
    seen = [number for number, middle in enumerate(middles) if changed_at(path, middle) != before]
    assert seen == list(range(0, 65, 3))


def test_config_names_and_shards_are_part_of_the_id(tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIG, {"a": ones(2)}, name="model-1.safetensors")
    write_folder(tmp_path, CONFIG, {"b": ones(2)}, name="model-2.safetensors")
    ids = [weights_id(tmp_path)]
    (tmp_path / "model-2.safetensors").rename(tmp_path / "model-3.safetensors")
    ids.append(weights_id(tmp_path))
    (tmp_path / "config.json").write_text((tmp_path / "config.json").read_text() + "\n")
    ids.append(weights_id(tmp_path))
    (tmp_path / "model-3.safetensors").unlink()
    ids.append(weights_id(tmp_path))
    assert None not in ids and len(set(ids)) == 4


def test_what_cannot_be_read_has_no_id(tmp_path: Path) -> None:
    whole = write_folder(tmp_path / "torn", CONFIG, draft_tensors()) / "model.safetensors"
    whole.write_bytes(whole.read_bytes()[:-1])
    gguf = write_folder(tmp_path / "gguf", CONFIG)
    (gguf / "model.gguf").write_bytes(b"GGUF")
    without = write_folder(tmp_path / "without", CONFIG, draft_tensors())
    (without / "config.json").unlink()
    folders = [whole.parent, gguf, without, tmp_path / "absent", Path("owner/model"), Path("a\0b")]
    assert [weights_id(folder) for folder in folders] == [None] * 6
