"""The whole command on the embedded engine, CPU, with a tiny random target and drafter."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from live_campaigns import of_case, play, write_project

pytest.importorskip("torch", reason="the embedded engine needs the extra: reference")

from test_measure_reference import write_tokenizer
from tiny_models import draft_config, draft_tensors, target_config, target_tensors, write_model

from workbench.cli import main
from workbench.store import read_campaign
from workbench.table import tables_of

VOCAB = 260
pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(
        tmp_path / "project",
        launch_prefix=[],
        repeats=4,
        target={"name": "T", "model_path": "tiny", "dtype": "float32"},
        drafters=[{"name": "d", "model_path": "tiny-draft"}],
        workload={"prompt_set": "few", "num_prompts": 3, "max_new_tokens": 24, "ignore_eos": True},
        server={"max_running_requests": 1, "context_length": 128},
        sweep=[
            {"speculative_num_steps": [1, 2, 3, 4, 5, 6]},
            {"speculative_num_steps": [2, 3], "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 6},
        ],
    )
    target, draft = target_config(vocab=VOCAB), draft_config(vocab=VOCAB, draft_vocab=200)
    write_tokenizer(write_model(project / "tiny", target, target_tensors(target)))
    write_model(project / "tiny-draft", draft, draft_tensors(draft))
    play(monkeypatch, project)
    return project


@pytest.mark.timeout(120)
def test_a_search_on_the_embedded_engine(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["tune", "small", "--quiet", "--budget-minutes", "0.4"])
    said = capsys.readouterr().out
    folder = root / "data" / "runs" / "small"
    answer = json.loads((folder / "tune.json").read_text())
    (best,) = answer["best"]
    assert code == int(best["state"] == "undecided")
    assert said.startswith(f"At 1 at once: {best['config']}")
    assert "-m workbench.reference --model-path" in said
    assert f"written: {folder / 'tune.json'}" in said
    # A start takes a few seconds here; the last one may take longer than those before.
    assert 0 < answer["gpu_minutes"]["spent"] < 0.8
    # One process took one shape after the other: only its first log tells of its beginning.
    logs = sorted(folder.glob("_servers/*/server-*.log"), key=lambda log: log.name)
    assert len(logs) == answer["gpu_minutes"]["starts"] >= 3
    assert ["Started server process" in log.read_text() for log in logs] == [True] + [False] * (len(logs) - 1)
    campaign = read_campaign(folder)
    assert campaign.problems == ()
    tables = tables_of([campaign])
    drafted = tables.runs.set_index("run_id")["num_draft_tokens"]
    assert set(drafted.dropna()) >= {2, 7}
    assert tables.runs["log_median_tok_per_s"].notna().any()
    measured = [row for row in answer["ranking"] if row["basis"] == "measured"]
    assert {row["config"] for row in measured} >= {"baseline-default", "eagle3-d-s6-k1-n7", "eagle3-d-s1-k1-n2"}
    assert max(measured, key=lambda row: row["tok_per_s"])["config"] == best["config"]
    # Every figure is that of the passes in the run folders.
    visits = [json.loads(path.read_text()) for path in folder.glob(f"{best['config']}*/windows.json")]
    speeds = [np.median(np.log([window["decode_tok_per_s"] for window in passes])) for passes in visits]
    assert best["measured_tok_per_s"] == pytest.approx(float(np.exp(np.mean(speeds))), rel=1e-6)
    assert of_case(root) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_search_that_is_stopped_leaves_no_server_and_goes_on(root: Path, how: signal.Signals) -> None:
    words = [sys.executable, "-m", "workbench", "tune", "small", "--quiet", "--budget-minutes", "0.4"]
    search = subprocess.Popen(words, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = root / "data" / "runs" / "small"
    deadline = time.monotonic() + 60
    # In the middle of the second shape, which the first one's server serves.
    while len(list(folder.glob("_servers/*/server-*.log"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    search.send_signal(how)
    assert search.wait(30) != 0
    while of_case(root) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert of_case(root) == []
    assert main(["tune", "small", "--quiet", "--budget-minutes", "0.4"]) in (0, 1)
    assert json.loads((folder / "tune.json").read_text())["gpu_minutes"]["starts"] >= 3
    assert of_case(root) == []
