from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import torch
from safetensors.torch import load_file
from training_files import CPU, config_for, greedy_samples, silent, tiny_target, write_corpus

from workbench import check
from workbench.drafter.checkpoint import load_draft, save_draft
from workbench.drafter.model import Eagle3Draft
from workbench.errors import UsageError
from workbench.training import state
from workbench.training.cache import size_bytes
from workbench.training.config import SHARING, TrainConfig
from workbench.training.evaluate import summary, walks
from workbench.training.setup import prepare
from workbench.training.step import Stepper
from workbench.training.train import _pays, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target and a corpus of 16 of its answers."""
    folder = tmp_path_factory.mktemp("run")
    target = tiny_target(folder / "target")
    write_corpus(folder / "corpus", greedy_samples(target, 16))
    return folder


def run(config: TrainConfig, *, resume: bool = False) -> dict[str, torch.Tensor]:
    train(config, resume=resume, say=silent, overwrite=silent)
    return load_file(Path(config.out) / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def read(config: TrainConfig) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((Path(config.out) / "training.json").read_text())
    return record


@pytest.mark.slow
def test_eight_samples_are_learnt_by_heart(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target", sureness=4)
    whole = [sample for sample in greedy_samples(target, 40, new_tokens=32) if sample.response_tokens == 32]
    write_corpus(tmp_path / "corpus", whole[:8])
    # With all drafts accepted 31 tokens take 8 rounds: 3.875 is the most.
    config = config_for(tmp_path, steps=140, learning_rate=2e-2, draft_vocab_size=24, tokens_per_step=1024)
    run(config)
    setup = prepare(config, CPU)
    draft = load_draft(Path(config.out), dtype=torch.float32, device=CPU)
    figures = summary(walks(target, draft, setup.samples, capture=setup.capture, steps=3), seed=0)
    assert figures["accept_length"]["3"] > 3.5
    untrained = walks(target, setup.draft, setup.samples, capture=setup.capture, steps=3)
    assert summary(untrained, seed=0)["accept_length"]["3"] < 2


def test_a_draft_that_sglang_loads(folder: Path, tmp_path: Path) -> None:
    config = config_for(folder, out=str(tmp_path / "draft"), held_out=4, log_steps=2)
    tensors = run(config)
    assert set(tensors) == {
        *("fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"),
        *(f"midlayer.{name}.weight" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")),
        *(f"midlayer.self_attn.{name}_proj.weight" for name in "qkvo"),
        *(f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    }
    written = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert written["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 3]
    assert written["draft_vocab_size"] == 20
    results = check.check_files(
        tmp_path / "draft", target=folder / "target", algorithm="EAGLE3", context_length=64, version=None, tp_size=None
    )
    assert not [result for result in results if result.severity == "error"]
    record = read(config)
    assert record["seen"]["optimizer_steps"] == 6
    assert set(record["held_out"]["accept_length"]) == {"1", "2", "3"}
    assert [line["step"] for line in record["curve"]] == [2, 4, 6]
    assert all(len(line["accuracy_by_pass"]) == 3 and line["loss"] > 0 for line in record["curve"])
    assert not (tmp_path / "draft" / state.NAME).exists()


def test_what_is_written_is_what_was_trained(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[Eagle3Draft] = []

    def stash(draft: Eagle3Draft, out: Path) -> None:
        trained.append(draft)
        save_draft(draft, out)

    monkeypatch.setattr("workbench.training.train.save_draft", stash)
    config = config_for(folder, out=str(tmp_path / "draft"), steps=3)
    run(config)
    written = load_draft(tmp_path / "draft", dtype=torch.float32, device=CPU)
    states = torch.randn(3, 16)
    with torch.no_grad():
        assert torch.allclose(written.logits(states), trained[0].logits(states), rtol=0.02, atol=0.02)
    for name, parameter in trained[0].named_parameters():
        assert torch.equal(written.get_parameter(name), parameter.to(torch.bfloat16).float()), name
    assert torch.equal(written.target_ids, trained[0].target_ids)


def test_a_killed_run_goes_on_to_the_same_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {"steps": 8, "checkpoint_minutes": 1e-9, "log_steps": 1}
    whole = run(config_for(folder, out=str(tmp_path / "whole"), **keys))
    config = config_for(folder, out=str(tmp_path / "killed"), **keys)
    taken = 0

    def step(self: Stepper, samples: Any, rate: float) -> float:
        nonlocal taken
        taken += 1
        if taken == 6:
            raise KeyboardInterrupt
        return real(self, samples, rate)

    real = Stepper.step
    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "step", step)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    with pytest.raises(UsageError, match="did not finish"):
        run(config)
    with pytest.raises(UsageError, match="differs in learning_rate"):
        run(config.model_copy(update={"learning_rate": 0.1}), resume=True)
    assert same(run(config, resume=True), whole)
    assert [line["step"] for line in read(config)["curve"]] == list(range(1, 9))
    assert read(config)["seen"] == read(config_for(folder, out=str(tmp_path / "whole")))["seen"]


def test_a_finished_drafter_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    config = config_for(folder, out=str(tmp_path / "draft"), steps=1)
    run(config)
    with pytest.raises(UsageError, match="finished drafter"):
        run(config, resume=True)


def test_gradients_of_pieces_add_up(folder: Path, tmp_path: Path) -> None:
    whole = run(config_for(folder, out=str(tmp_path / "whole")))
    pieces = run(config_for(folder, out=str(tmp_path / "pieces"), tokens_per_pass=40))
    assert all(torch.allclose(pieces[name].float(), whole[name].float(), atol=2e-3) for name in whole)


@pytest.mark.slow
def test_two_processes_train_what_one_does(folder: Path, tmp_path: Path) -> None:
    one = run(config_for(folder, out=str(tmp_path / "one"), held_out=4))
    config = config_for(folder, out=str(tmp_path / "two"), held_out=4)
    path = tmp_path / "two.yaml"
    path.write_text(json.dumps(config.model_dump(mode="json")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "workbench", "train", str(path), "--quiet"],
            env={
                **os.environ,
                **{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)},
                **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    two = load_file(tmp_path / "two" / "model.safetensors")
    assert all(torch.allclose(two[name].float(), one[name].float(), atol=2e-3) for name in one)
    assert read(config)["seen"] == read(config_for(folder, out=str(tmp_path / "one")))["seen"]
    assert read(config)["processes"] == 2


def test_the_subset_shares_its_vocabulary_with_the_whole(folder: Path) -> None:
    whole = prepare(config_for(folder, held_out=2), CPU)
    some = prepare(config_for(folder, held_out=2, prompts=4), CPU)
    assert some.about["prompts"] == 4
    assert {s.prompt for s in some.samples} < {s.prompt for s in whole.samples}
    assert torch.equal(some.draft.target_ids, whole.draft.target_ids)
    assert [s.prompt for s in some.held_out] == [s.prompt for s in whole.held_out]


def test_a_run_goes_on_from_a_draft(folder: Path, tmp_path: Path) -> None:
    first = config_for(folder, out=str(tmp_path / "first"), steps=2)
    run(first)
    again = config_for(folder, init_from=first.out, draft_vocab_size=None, capture=None)
    setup = prepare(again, CPU)
    assert setup.capture == (1, 2, 4)
    assert torch.equal(setup.master.fc, load_draft(Path(first.out), dtype=torch.float32, device=CPU).fc)
    mapped = prepare(config_for(folder, vocab_from=first.out, draft_vocab_size=None), CPU)
    assert torch.equal(mapped.master.target_ids, setup.master.target_ids)


def test_a_run_of_so_many_minutes_ends(folder: Path, tmp_path: Path) -> None:
    config = config_for(folder, out=str(tmp_path / "draft"), steps=None, minutes=0.02, log_steps=1)
    run(config)
    record = read(config)
    assert 1.2 <= record["seconds"] < 30  # one step more than there was time for; a busy machine makes it long
    assert record["curve"][-1]["learning_rate"] < 0.3 * config.learning_rate


def test_half_precision_passes_learn_too(folder: Path, tmp_path: Path) -> None:
    config = config_for(folder, out=str(tmp_path / "draft"), steps=30, dtype="bfloat16", log_steps=1)
    run(config)
    curve = read(config)["curve"]
    assert curve[-1]["loss"] < 0.7 * curve[0]["loss"]


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_what_is_kept_of_the_target_changes_nothing(folder: Path, tmp_path: Path, share: float) -> None:
    plain = run(config_for(folder, out=str(tmp_path / "plain"), cache_gb=0))
    tokens = sum(len(sample.ids) for sample in prepare(config_for(folder), CPU).samples)
    # Three captured states of 16 floats each, and about one more of each token.
    size = share * tokens * 4 * 16 * 4 / 1e9
    kept = run(config_for(folder, out=str(tmp_path / "kept"), cache_gb=size))
    assert all(torch.allclose(plain[name].float(), kept[name].float(), atol=2e-3) for name in plain)


def test_the_target_is_asked_once_about_what_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = Stepper._prepare

    def count(self: Stepper, samples: Any) -> Any:
        asked.append(len(samples))
        return real(self, samples)

    monkeypatch.setattr(Stepper, "_prepare", count)
    config = config_for(folder, out=str(tmp_path / "draft"), cache_gb=1, steps=20)
    run(config)
    assert sum(asked) == len(prepare(config, CPU).samples)
    assert read(config)["seen"]["samples"] > 2 * sum(asked)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs g++")
@pytest.mark.filterwarnings("ignore")
def test_compiled_passes_train_what_plain_ones_do(folder: Path, tmp_path: Path) -> None:
    plain = run(config_for(folder, out=str(tmp_path / "plain"), compile=False))
    from torch._dynamo.utils import counters

    counters.clear()
    compiled = run(config_for(folder, out=str(tmp_path / "compiled"), compile=True))
    # Seven functions, once each however long the batches are; those of a row's own keys again for a single one.
    assert counters["stats"]["unique_graphs"] <= 9
    assert all(torch.allclose(plain[name].float(), compiled[name].float(), atol=2e-3) for name in plain)


@pytest.mark.parametrize(("steps", "pays"), [(399, False), (400, True), (None, True)])
def test_what_is_short_is_not_compiled(steps: int | None, pays: bool) -> None:
    assert _pays(torch.device("cuda"), steps) is pays
    assert not _pays(CPU, steps)


def test_trainings_that_share_a_gpu_keep_their_share_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (90, 100))
    gpu = torch.device("cuda")
    assert (size_bytes("auto", gpu), size_bytes(2.5, gpu), size_bytes("auto", CPU)) == (54, 2_500_000_000, 0)
    monkeypatch.setenv(SHARING, "3")
    assert size_bytes("auto", gpu) == 20
