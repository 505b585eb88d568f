from __future__ import annotations

import json
import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import booleans, draft_tensors, int64, ones, safetensors_bytes, with_header, write_folder, zeros

from workbench.checkpoint import INDEX_NAME, MAX_JSON_BYTES, Checkpoint, read_checkpoint
from workbench.errors import CheckpointError


def folder_with(tmp_path: Path, content: bytes) -> Path:
    write_folder(tmp_path, {"model_type": "llama"})
    (tmp_path / "model.safetensors").write_bytes(content)
    return tmp_path


def fault(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    assert caught.value.where
    assert caught.value.next_step
    return str(caught.value)


# --- what is read ------------------------------------------------------------------------------------------------


def test_reads_names_dtypes_shapes_and_places(tmp_path):
    write_folder(tmp_path, {"hidden_size": 8}, {"a": ones(2, 3), "b": int64([7, -1])})
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.config == {"hidden_size": 8}
    a, b = checkpoint.tensors["a"], checkpoint.tensors["b"]
    assert (a.dtype, a.shape, a.size_bytes, a.file) == ("BF16", (2, 3), 12, tmp_path / "model.safetensors")
    assert (b.dtype, b.shape, b.size_bytes) == ("I64", (2,), 16)
    assert b.start == a.start + 12
    assert checkpoint.read_ints("b") == [7, -1]


def test_integers_of_every_width_and_booleans(tmp_path):
    tensors = {
        "i8": ("I8", (2,), b"\xff\x02"),
        "u8": ("U8", (2,), b"\xff\x02"),
        "i16": ("I16", (1,), b"\xfe\xff"),
        "u32": ("U32", (1,), b"\x01\x00\x00\x80"),
        "bool": booleans([1], 3),
        "empty": int64([]),
    }
    checkpoint = read_checkpoint(write_folder(tmp_path, {}, tensors))
    assert checkpoint.read_ints("i8") == [-1, 2]
    assert checkpoint.read_ints("u8") == [255, 2]
    assert checkpoint.read_ints("i16") == [-2]
    assert checkpoint.read_ints("u32") == [2147483649]
    assert checkpoint.read_ints("bool") == [0, 1, 0]
    assert checkpoint.read_ints("empty") == []


def test_zero_is_told_from_nonzero_to_the_last_byte(tmp_path):
    almost = ("BF16", (1 << 20,), bytes((1 << 21) - 1) + b"\x01")
    checkpoint = read_checkpoint(write_folder(tmp_path, {}, {"zero": zeros(3, 3), "almost": almost}))
    assert checkpoint.is_zero("zero")
    assert not checkpoint.is_zero("almost")


def test_floats_and_absent_tensors_are_not_read_as_integers(tmp_path):
    checkpoint = read_checkpoint(write_folder(tmp_path, {}, {"a": ones(2)}))
    with pytest.raises(CheckpointError, match="BF16, not integers"):
        checkpoint.read_ints("a")
    with pytest.raises(CheckpointError, match="no tensor 'b'"):
        checkpoint.read_ints("b")


def test_a_target_folder_may_hold_only_its_config(tmp_path):
    checkpoint = read_checkpoint(write_folder(tmp_path, {"vocab_size": 16}))
    assert checkpoint.tensors == {}
    assert checkpoint.pickles == ()


def test_config_alone_does_not_look_at_the_weights(tmp_path):
    folder = folder_with(tmp_path, b"broken")
    assert read_checkpoint(folder, weights=False).config == {"model_type": "llama"}
    assert "6 bytes" in fault(folder)


def test_shards_of_an_index_and_nothing_else(tmp_path):
    write_folder(tmp_path, {}, {"a": ones(1)}, name="model-1.safetensors")
    write_folder(tmp_path, {}, {"b": ones(2)}, name="model-2.safetensors")
    write_folder(tmp_path, {}, {"a": ones(3)}, name="consolidated.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    assert {name: info.shape for name, info in read_checkpoint(tmp_path).tensors.items()} == {"a": (1,), "b": (2,)}


def test_every_safetensors_file_without_an_index(tmp_path):
    write_folder(tmp_path, {}, {"a": ones(1)}, name="x.safetensors")
    write_folder(tmp_path, {}, {"b": ones(2)}, name="y.safetensors")
    assert sorted(read_checkpoint(tmp_path).tensors) == ["a", "b"]


def test_pickles_are_listed_and_never_opened(tmp_path):
    write_folder(tmp_path, {})
    # Opening a pipe that nobody writes to would hang this test.
    os.mkfifo(tmp_path / "pytorch_model.bin")
    checkpoint = read_checkpoint(tmp_path)
    assert [path.name for path in checkpoint.pickles] == ["pytorch_model.bin"]
    assert checkpoint.tensors == {}


def test_the_language_part_of_a_multimodal_config(tmp_path):
    nested = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {"num_hidden_layers": 61}}
    assert Checkpoint(tmp_path, nested).text_config == {"num_hidden_layers": 61}
    assert Checkpoint(tmp_path, {"vocab_size": 2}).text_config == {"vocab_size": 2}
    assert Checkpoint(tmp_path, {"text_config": None, "vocab_size": 2}).text_config == {
        "text_config": None,
        "vocab_size": 2,
    }


# --- what is refused ---------------------------------------------------------------------------------------------


def test_missing_folder_and_missing_config(tmp_path):
    assert "no such model folder" in fault(tmp_path / "absent")
    file = tmp_path / "config.json"
    file.write_text("{}")
    assert "no such model folder" in fault(file)
    (tmp_path / "empty").mkdir()
    assert "config.json: missing" in fault(tmp_path / "empty")


def test_a_folder_name_with_nul_is_refused():
    assert "no such model folder" in fault(Path("a\0b"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b'{"a": {"b": 1, "b": 1}}', "stands twice"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"", "not valid JSON"),
    ],
)
def test_config_that_is_not_one_json_object(tmp_path, config, message):
    (tmp_path / "config.json").write_bytes(config)
    assert message in fault(tmp_path)


def test_json_above_the_bound_is_not_read(tmp_path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    assert "larger than" in fault(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "only 0 bytes"),
        (b"\x02\x00\x00", "only 3 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "header of 9223372036854775808 bytes"),
        (struct.pack("<Q", 3) + b"{}", "header of 3 bytes in a file of 10"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (with_header(b"[]"), "not a JSON object"),
        (with_header(b'  {"a": 1}'), "not a JSON object"),
        (with_header(b'{"a":' * 200_000), "nested too deeply"),
        (with_header({"a": 1}), "'a' is not an object"),
        (with_header(b'{"a": {}, "a": {}}'), "stands twice"),
    ],
)
def test_a_header_that_is_not_one(tmp_path, content, message):
    assert message in fault(folder_with(tmp_path, content))


def entry(shape: object, begin: object, end: object, dtype: object = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": entry([4], 0, 4), "b": entry([4], 2, 6)}, "'b' overlaps"),
        ({"a": entry([4], 0, 4), "b": entry([4], 0, 4)}, "overlaps"),
        ({"a": entry([4], 2, 6)}, "'a' leaves a gap"),
        ({"a": entry([4], 0, 4)}, "describes 4 bytes of data and the file holds 8"),
        ({"a": entry([9], 0, 9)}, "describes 9 bytes of data and the file holds 8"),
        ({"a": entry([3], 0, 4)}, "shape [3] and U8 does not fit its 4 bytes"),
        ({"a": entry([4], 4, 0)}, "does not fit"),
        ({"a": entry([-8], 0, 8)}, "invalid"),
        ({"a": entry([True] * 8, 0, 8)}, "invalid"),
        ({"a": entry([8.0], 0, 8)}, "invalid"),
        ({"a": entry("8", 0, 8)}, "invalid"),
        ({"a": entry([8], 0, 2**64)}, "invalid"),
        ({"a": entry([1] * 65, 0, 1)}, "invalid"),
        ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 4, 8]}}, "invalid"),
        ({"a": {"dtype": "U8", "shape": [8]}}, "invalid"),
        ({"a": entry([8], 0, 8, "F3")}, "unknown dtype 'F3'"),
        ({"a": entry([8], 0, 8, ["U8"])}, "unknown dtype"),
    ],
)
def test_entries_that_do_not_fit_the_file(tmp_path, header, message):
    assert message in fault(folder_with(tmp_path, with_header(header, bytes(8))))


def test_a_file_cut_short_says_so(tmp_path):
    whole = safetensors_bytes(draft_tensors())
    message = fault(folder_with(tmp_path, whole[:-1]))
    assert "cut short" in message
    assert "model.safetensors" in message


def test_one_tensor_in_two_files(tmp_path):
    write_folder(tmp_path, {}, {"a": ones(1)}, name="x.safetensors")
    write_folder(tmp_path, {}, {"a": ones(1)}, name="y.safetensors")
    assert "'a' stands in x.safetensors too" in fault(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/outside.safetensors",
        "sub/outside.safetensors",
        "..\\outside.safetensors",
        "C:outside.safetensors",
        "a\0b.safetensors",
        "a\nb.safetensors",
        "..",
        "",
        "pytorch_model.bin",
        "a" * 300 + ".safetensors",
        "\ud800.safetensors",
        7,
        None,
        ["a.safetensors"],
    ],
)
def test_an_index_cannot_lead_out_of_its_folder(tmp_path, name):
    folder = write_folder(tmp_path / "model", {})
    write_folder(tmp_path, {}, {"secret": ones(1)}, name="outside.safetensors")
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": {"a": name}}))
    assert "plain .safetensors file name" in fault(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": ["a.safetensors"]}])
def test_an_index_without_files(tmp_path, index):
    write_folder(tmp_path, {})
    (tmp_path / INDEX_NAME).write_text(json.dumps(index))
    assert "no weight_map" in fault(tmp_path)


def test_missing_shards_are_counted_and_named(tmp_path):
    write_folder(tmp_path, {}, {"a": ones(1)}, name="m-1.safetensors")
    weight_map = {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-3.safetensors"}
    (tmp_path / INDEX_NAME).write_text(json.dumps({"weight_map": weight_map}))
    assert "2 of 3 weight files are missing, the first is 'm-2.safetensors'" in fault(tmp_path)


def test_a_pipe_in_place_of_weights_does_not_block(tmp_path):
    write_folder(tmp_path, {})
    os.mkfifo(tmp_path / "model.safetensors")
    assert "not a regular file" in fault(tmp_path)


def test_weights_that_vanish_after_the_header_was_read(tmp_path):
    checkpoint = read_checkpoint(write_folder(tmp_path, {}, {"a": int64([1]), "b": int64([2, 3])}))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="ends inside 'b'"):
        checkpoint.read_ints("b")
    weights.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.is_zero("a")


# --- any bytes at all --------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NEARLY_AN_ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["U8", "BF16", "I64", "F4", "BOOL"]) | JSON,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-1, 16), min_size=2, max_size=2) | JSON,
    }
)


def reads_or_refuses(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        try:
            checkpoint = read_checkpoint(folder)
        except CheckpointError as error:
            assert error.where and error.next_step
            return
        for info in checkpoint.tensors.values():
            assert 8 <= info.start <= info.start + info.size_bytes <= info.file.stat().st_size
            assert info.file.parent == folder
            checkpoint.is_zero(info.name)


@given(st.binary(max_size=64))
def test_any_bytes_as_weights(content):
    reads_or_refuses({"config.json": b"{}", "model.safetensors": content})


@given(st.binary(max_size=64))
def test_any_bytes_as_config(content):
    reads_or_refuses({"config.json": content})


@given(st.dictionaries(st.text(max_size=4), NEARLY_AN_ENTRY | JSON, max_size=3), st.binary(max_size=16))
@settings(max_examples=200)
def test_any_header(header, data):
    reads_or_refuses({"config.json": b"{}", "model.safetensors": with_header(header, data)})


@given(JSON | st.fixed_dictionaries({"weight_map": st.dictionaries(st.text(max_size=4), JSON, max_size=3)}))
def test_any_index(index):
    reads_or_refuses({"config.json": b"{}", INDEX_NAME: json.dumps(index).encode()})


@given(st.text(max_size=20))
def test_any_shard_name(name):
    index = {"weight_map": {"a": name + ".safetensors"}}
    reads_or_refuses({"config.json": b"{}", INDEX_NAME: json.dumps(index).encode()})


WHOLE = safetensors_bytes(draft_tensors())


@given(st.integers(0, len(WHOLE)), st.integers(0, 1500), st.integers(0, 255))
@settings(max_examples=200)
def test_any_cut_and_any_changed_byte(cut, place, byte):
    content = bytearray(WHOLE[:cut])
    if place < len(content):
        content[place] = byte
    reads_or_refuses({"config.json": b"{}", "model.safetensors": bytes(content)})
