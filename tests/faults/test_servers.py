"""Servers that misbehave while they are measured, logs that are rotated under way, GPUs that fall silent."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeGpu, FakeNvml
from injecting import Tally, gpu_project, locks_held
from live_campaigns import PROMPTS, RUNS, WARMUP, briefly, of_case, play, run, run_folder, status, write_project

from workbench import measure
from workbench.analysis.answers import drift
from workbench.analysis.speedup import drift_df
from workbench.paths import runs_dir
from workbench.store import read_gpu, read_requests, read_run
from workbench.table import load_tables


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path / "project")
    play(monkeypatch, root)
    return root


def records_of(root: Path, start: str) -> list[dict[str, Any]]:
    records, problems = read_requests(read_run(run_folder(root, start)))
    assert problems == []
    return records


THIRDS = [
    *(("http500", 1, "2 of 6 requests failed: HTTP 500 (2)"), ("http500", 2, "HTTP 500")),
    *(("half-json", 1, "2 of 6 requests failed"), ("half-json", 2, "requests failed")),
    *(("close", 1, "2 of 6 requests failed"), ("close", 2, "requests failed")),
]


@pytest.mark.parametrize(
    ("fault", "at_once", "said"),
    [pytest.param(*each, marks=[] if each[:2] == ("close", 1) else pytest.mark.slow) for each in THIRDS],
)
def test_a_third_of_the_answers_is_bad(
    root: Path, monkeypatch: pytest.MonkeyPatch, fault: str, at_once: int, said: str, tally: Tally
) -> None:
    """They are counted, said, and in no figure; with one request at a time answers are streams, else they are not."""
    play(monkeypatch, root, baseline=["--fault", f"{fault}%3"])
    assert set(briefly(run("only=baseline-default", f"max_concurrency=[{at_once}]")).values()) == {"ok"}
    tally.injected = 2
    (folder,) = (root / "data" / "runs" / "small").glob("baseline*")
    assert said in status(folder)["reason"]
    found = read_run(folder)
    records, _ = read_requests(found)
    good = [record for record in records if "error" not in record]
    assert (len(records), len(good)) == (PROMPTS, PROMPTS - 2)
    assert found.windows[0].failed == 2 and found.windows[0].completion_tokens == 8 * len(good)
    # The same again does not take the counted ones for missing.
    assert set(briefly(run("only=baseline-default", f"max_concurrency=[{at_once}]")).values()) == {"kept"}
    tally.survived = 2


@pytest.mark.slow
def test_a_server_that_slows_tenfold_shows_in_what_is_measured_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    play(monkeypatch, root, all=["--step-ms", "10"], first=["--fault", f"slow@{WARMUP + 3}"])
    tally.injected = 1
    assert briefly(run()) == dict.fromkeys(RUNS, "ok")
    latencies = [record["latency_s"] for record in records_of(root, "baseline-default-c1")]
    assert statistics.median(latencies[3:]) > 5 * statistics.median(latencies[:2])
    tables = load_tables(runs_dir() / "small")
    told = drift(drift_df(tables.runs, tables.requests))
    assert told is not None and "measured again ran at" in told
    change = float(told.rpartition("(")[2].partition("%")[0])
    assert change > 100, told
    tally.survived = 1


@pytest.mark.slow
def test_a_server_that_leaks_until_it_has_no_memory(root: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally) -> None:
    """64 MiB a request in 1,280 MiB: the warm-up passes. What it answered is kept, and it is measured next time."""
    play(monkeypatch, root, speculative=["--fault", "leak", "--memory-mb", "1280"])
    tally.injected = 1
    assert briefly(run("repeats=3")) == dict.fromkeys(RUNS, "ok") | {RUNS[1]: "failed"}
    reason = status(run_folder(root, RUNS[1]))["reason"]
    assert reason.startswith("the server ended while it was measured: the machine ran out of memory"), reason
    assert any("error" not in record for record in records_of(root, RUNS[1]))
    assert of_case(root) == [] and locks_held(root) == []
    play(monkeypatch, root)
    assert briefly(run("repeats=3")) == dict.fromkeys(RUNS, "kept") | {RUNS[1]: "ok"}
    tally.survived = 1


def _renamed(log: Path) -> None:
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"")


def _emptied(log: Path) -> None:
    os.truncate(log, 0)


def _filled_again(log: Path) -> None:
    size = log.stat().st_size
    os.truncate(log, 0)
    with log.open("ab") as file:
        file.write(b"[2026-11-30 10:00:00] other lines\n" * (1 + size // 30))


ROTATED: dict[str, tuple[Callable[[Path], None], str]] = {
    "renamed, a new one in its place": (_renamed, "emptied or replaced"),
    "emptied": (_emptied, "emptied or replaced"),
    "emptied, and as long again": (_filled_again, "emptied or replaced"),
    "removed": (Path.unlink, "is gone"),
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[] if how == "emptied" else pytest.mark.slow) for how in ROTATED]
)
def test_a_log_that_is_rotated_while_it_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch, how: str, tally: Tally
) -> None:
    rotate, said = ROTATED[how]
    whole, done = measure._append_line, []

    def append(*arguments: Any) -> None:
        whole(*arguments)
        if not done:
            done.append(True)
            rotate(next((root / "data" / "runs" / "small" / "_servers").glob("*/server-*.log")))

    monkeypatch.setattr(measure, "_append_line", append)
    tally.injected = 1
    ended = run("max_concurrency=[1, 2]", "only=baseline-default")
    assert set(briefly(ended).values()) == {"ok"}
    assert said in status(run_folder(root, "baseline-default-c1"))["reason"]
    afterwards = status(run_folder(root, "baseline-default-c2")).get("reason", "")
    assert (said in afterwards) == (said == "is gone")
    tables = load_tables(runs_dir() / "small")
    assert len(tables.runs) == 2 and len(tables.requests) == 2 * PROMPTS
    tally.survived = 1


def test_a_log_that_is_emptied_while_its_server_starts(
    root: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    """It is read on from its new beginning, so that the line that it is ready is not missed."""
    play(monkeypatch, root, baseline=["--load-s", "0.5"])

    def say(text: str) -> None:
        if "loading weights" in text:
            _emptied(next((root / "data" / "runs" / "small" / "_servers").glob("*/server-*.log")))
            tally.injected = 1

    from workbench.sweep import find_campaign

    ended = measure.run_campaign(find_campaign("small", ["only=baseline-default", "ready_timeout_s=10"]), say=say)
    assert briefly(ended) == {RUNS[0]: "ok"} and tally.injected == 1
    tally.survived = 1


@pytest.mark.slow
@pytest.mark.parametrize("what", ["power", "all"])
def test_gpu_telemetry_that_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, tally: Tally) -> None:
    """No energy is made up for the time of which nothing is known."""
    root = gpu_project(tmp_path / "project")
    play(monkeypatch, root, all=["--step-ms", "60"])
    nvml = FakeNvml([FakeGpu(), FakeGpu()])
    nvml.install(monkeypatch)
    whole, answers = measure._append_line, []

    def append(*arguments: Any) -> None:
        whole(*arguments)
        answers.append(1)
        if len(answers) == 2:
            tally.injected = 1
            for gpu in nvml.gpus:
                gpu.power_mw = None
            if what == "all":
                nvml.gpus.clear()

    monkeypatch.setattr(measure, "_append_line", append)
    assert briefly(run("only=baseline-default")) == {RUNS[0]: "ok"}
    samples, problems = read_gpu(read_run(run_folder(root, RUNS[0])))
    assert problems == [] and samples[0]["power_w"] == 150.0 and samples[-1]["power_w"] is None
    assert (samples[-1]["memory_used_bytes"] is None) == (what == "all")
    tables = load_tables(runs_dir() / "small")
    by_run = tables.runs.set_index("run_id")
    assert by_run["energy_j_per_tok"].isna().all()
    told = [problem.what for problem in tables.problems if RUNS[0] in problem.where]
    assert any("its samples do not cover the windows" in text for text in told), tables.problems
    tally.survived = 1
