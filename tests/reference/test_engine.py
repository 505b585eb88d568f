from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine needs torch (extra: reference)")

import torch
from tiny_models import draft_config, draft_tensors, target_config, target_tensors, write_model

from workbench.errors import CheckpointError, UsageError, WorkbenchError
from workbench.reference.arguments import ServerArguments, parse_arguments
from workbench.reference.engine import _simulation, load_engine


def arguments(folder: Path, target: dict[str, object], draft: dict[str, object] | None, *more: str) -> ServerArguments:
    write_model(folder / "target", target, target_tensors(target))
    argv = ["--model-path", str(folder / "target"), "--skip-tokenizer-init", "--device", "cpu", *more]
    if draft is not None:
        write_model(folder / "draft", draft, draft_tensors(draft))
        argv += ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(folder / "draft")]
    return parse_arguments(argv)[0]


def test_an_engine_knows_its_model(tmp_path: Path) -> None:
    engine = load_engine(arguments(tmp_path, target_config(eos_token_id=[2, 5]), draft_config()))
    assert engine.limits.eos_token_ids == {2, 5}
    assert (engine.limits.context_len, engine.limits.vocab_size) == (128, 12)
    assert engine.dtype is torch.float32
    assert engine.chat is None


def test_types_and_length_as_asked(tmp_path: Path) -> None:
    more = ("--dtype", "half", "--context-length", "50")
    engine = load_engine(arguments(tmp_path, target_config(), None, *more))
    assert engine.dtype is torch.float16
    assert engine.limits.context_len == engine.decoder.context_len == 50


@pytest.mark.parametrize(
    ("target", "draft", "named"),
    [
        ({}, {"vocab": 13}, "vocab_size is 13, the target's is 12"),
        ({}, {"max_position_embeddings": 64}, "below the context length of 128"),
        ({"layers": 3}, {}, r"captures layers \[1, 2, 4\], the target has 3"),
        ({"architectures": ["MistralForCausalLM"]}, {}, "MistralForCausalLM"),
    ],
)
def test_models_that_do_not_fit_are_named(
    tmp_path: Path, target: dict[str, object], draft: dict[str, object], named: str
) -> None:
    given = arguments(tmp_path, target_config(**target), draft_config(**draft))
    with pytest.raises(CheckpointError, match=named):
        load_engine(given)


def test_a_missing_folder_or_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such model folder"):
        load_engine(parse_arguments(["--model-path", str(tmp_path / "none"), "--skip-tokenizer-init"])[0])
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed (extra: reference)")
    write_model(tmp_path / "t", target_config(), target_tensors(target_config()))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: missing"):
        load_engine(parse_arguments(["--model-path", str(tmp_path / "t")])[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    argv = ["--model-path", str(tmp_path), "--device", "cuda"]
    with pytest.raises(UsageError, match="no GPU"):
        load_engine(parse_arguments(argv)[0])


@pytest.mark.parametrize(
    ("length", "method", "expected"),
    [
        (None, None, (None, "match-expected")),
        ("-1", None, (None, "match-expected")),
        ("2.5", "multinomial", (2.5, "multinomial")),
        ("two", None, UsageError),
        ("2", "poisson", UsageError),
    ],
)
def test_simulation_is_read_from_sglang_s_variables(
    monkeypatch: pytest.MonkeyPatch,
    length: str | None,
    method: str | None,
    expected: tuple[float | None, str] | type[WorkbenchError],
) -> None:
    for name, value in (("SGLANG_SIMULATE_ACC_LEN", length), ("SGLANG_SIMULATE_ACC_METHOD", method)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    if isinstance(expected, tuple):
        assert _simulation() == expected
    else:
        with pytest.raises(expected):
            _simulation()
