"""A campaign on the embedded engine itself, with a tiny random target and drafter."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_campaigns import RUNS, of_case, play, run_folder, states, write_project

pytest.importorskip("torch", reason="the embedded engine needs the extra: reference")

from tiny_models import (
    TOKENS,
    draft_config,
    draft_tensors,
    target_config,
    target_tensors,
    write_model,
    write_tokenizer,
)

from workbench import measure
from workbench.attached import Attachment
from workbench.spec import RunState
from workbench.store import read_requests, read_run
from workbench.sweep import find_campaign


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(
        tmp_path / "project",
        launch_prefix=[],
        baseline_again=False,
        target={"name": "T", "model_path": "tiny", "dtype": "float32"},
        drafters=[{"name": "d", "model_path": "tiny-draft"}],
        # Of a random target the text may end at once.
        workload={"prompt_set": "few", "num_prompts": 3, "max_new_tokens": 12, "ignore_eos": True},
        server={"max_running_requests": 4, "context_length": 128},
    )
    target, draft = target_config(vocab=TOKENS), draft_config(vocab=TOKENS, draft_vocab=200)
    write_tokenizer(write_model(project / "tiny", target, target_tensors(target)))
    write_model(project / "tiny-draft", draft, draft_tensors(draft))
    play(monkeypatch, project)
    return project


@pytest.mark.slow
def test_the_embedded_engine_is_launched_measured_and_attached_to(root: Path) -> None:
    ended = measure.run_campaign(find_campaign("small"), say=lambda _: None)
    assert [(run.state, run.reason) for run in ended] == [(RunState.OK, None)] * 2
    runs = {start: read_run(run_folder(root, start)) for start in RUNS[:2]}
    tokens = {}
    for start, run in runs.items():
        records, _ = read_requests(run)
        # The prompts went out as token ids of the chat template: one a byte of "prompt 0".
        assert [record["prompt_tokens"] for record in records] == [len("prompt 0")] * 3
        tokens[start] = [record["output_ids"] for record in records]
        assert [record["completion_tokens"] for record in records] == [12] * 3
    assert tokens[RUNS[0]] == tokens[RUNS[1]]
    resolved = runs[RUNS[1]].resolved
    assert resolved is not None and resolved["speculative_num_draft_tokens"] == 4
    # It runs one request at a time, and says so.
    assert {"setting": "max_running_requests", "asked": "4", "used": 1} in resolved["asked_differently"]
    assert of_case(root) == []

    with measure._served(work(root), measure.plan_of(find_campaign("small")).starts[0], root / "their.log") as served:
        place = Attachment(served.server.url, root / "their.log")
        (attached,) = measure.run_campaign(find_campaign("small"), place=place, say=lambda _: None)
    assert attached.state is RunState.OK
    run = read_run(run_folder(root, "attached-baseline"))
    assert (run.spec.engine, run.spec.baseline_group) == ("reference", runs[RUNS[0]].spec.baseline_group)
    assert set(states(root).values()) == {"ok"}


def work(root: Path) -> measure._Work:
    campaign = measure.located(measure.plan_of(find_campaign("small"))).campaign
    return measure._Work(root, campaign, (), None, measure.Progress((), 1, print), lambda _: None)
