"""Campaigns on real servers: the scripted one in the place of the engine."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from live_campaigns import (
    PROMPTS,
    RUNS,
    STALLED,
    WARMUP,
    briefly,
    of_case,
    play,
    run,
    run_folder,
    starts,
    states,
    status,
    write_project,
)
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, ones, write_folder

from workbench import measure, recording
from workbench.errors import InputError, Problem, RunFolderError, SpecError
from workbench.hashes import weights_id
from workbench.recording import alone
from workbench.spec import RunState
from workbench.store import read_campaign, read_requests, read_run
from workbench.sweep import find_campaign

# One byte differs from ones.
OTHER = ("BF16", (8,), b"\x81\x3f" + b"\x80\x3f" * 7)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project")
    play(monkeypatch, project)
    return project


# --- going well --------------------------------------------------------------------------------------------------


def test_a_campaign_leaves_whole_run_folders(root: Path) -> None:
    said: list[str] = []
    assert briefly(run("repeats=2", "workload.max_new_tokens=30", said=said)) == dict.fromkeys(RUNS, "ok")
    campaign = read_campaign(root / "data" / "runs" / "small")
    assert campaign.problems == () and len(campaign.runs) == 3
    (speculative,) = (run for run in campaign.runs if run.spec.role == "speculative")
    records, problems = read_requests(speculative)
    assert (len(records), problems) == (2 * PROMPTS, [])
    assert {record["completion_tokens"] for record in records} == {30}
    assert [window.repeat for window in speculative.windows] == [0, 1]
    assert all(window.started_s is not None and window.started_s > 0 for window in speculative.windows)
    assert {path.name for path in speculative.path.iterdir()} >= {"metrics.before.prom", "metrics.after.prom"}
    # Its part of the log is that of its windows alone: 30 tokens a request, decode lines every 10 steps.
    assert speculative.log is not None
    text = speculative.log.read_bytes()
    parts = b"".join(text[start:end] for start, end in speculative.status.log_spans)
    assert parts.count(b"POST /generate") == 2 * PROMPTS
    assert b"server_args" in text and b"server_args" not in parts
    assert speculative.provenance.argv[-2:] == ("--speculative-num-draft-tokens", "4")
    assert speculative.provenance.versions["sglang"] == "0.5.14"
    assert speculative.provenance.servers_alive == 1
    assert of_case(root) == []
    assert any(line.startswith("\r") and "warming up" in line for line in said)


def test_several_prompt_sets_share_a_start(root: Path) -> None:
    other = [json.dumps({"text": f"another, longer prompt, number {number}"}) for number in range(4)]
    (root / "data" / "prompts" / "more.jsonl").write_text("\n".join(other))
    sets = 'workload.more_prompt_sets={"more": 3}'
    ended = briefly(run(sets, "workload.max_new_tokens=5"))
    assert ended == {f"{name.removesuffix('-c1')}-{prompts}-c1": "ok" for name in RUNS for prompts in ("few", "more")}
    assert len(starts(root)) == 3
    tokens = {}
    for prompts, count in (("few", PROMPTS), ("more", 3)):
        found = read_run(run_folder(root, f"eagle3-d-s3-k1-n4-{prompts}-c1"))
        assert found.spec.workload.prompt_set == prompts
        records, _ = read_requests(found)
        assert len(records) == count
        tokens[prompts] = {record["prompt_tokens"] for record in records}
    assert max(tokens["few"]) < min(tokens["more"])
    with pytest.raises(SpecError, match="5 prompts are asked for, more has 4"):
        run('workload.more_prompt_sets={"more": 5}')


def test_greedy_tokens_are_kept_at_concurrency_1_only(root: Path) -> None:
    run("max_concurrency=[1, 2]", "workload.max_new_tokens=5")
    kept = {}
    for start in ("baseline-default-c1", "eagle3-d-s3-k1-n4-c1", "baseline-default-again-c1", "baseline-default-c2"):
        records, _ = read_requests(read_run(run_folder(root, start)))
        kept[start] = [record.get("output_ids") for record in sorted(records, key=lambda r: str(r["prompt_index"]))]
    assert kept["baseline-default-c2"] == [None] * PROMPTS
    assert kept["baseline-default-c1"] == kept["baseline-default-again-c1"] == kept["eagle3-d-s3-k1-n4-c1"]
    assert all(isinstance(ids, list) and len(ids) == 5 for ids in kept["baseline-default-c1"])


def test_sampled_tokens_are_not_kept(root: Path) -> None:
    run("workload.temperature=0.7", "only=baseline-default")
    records, _ = read_requests(read_run(run_folder(root, "baseline-default-c1")))
    assert all("output_ids" not in record for record in records)


def test_what_is_measured_is_kept_and_force_measures_again(root: Path) -> None:
    two, less = RUNS[:2], "baseline_again=false"
    run(less)
    assert briefly(run(less)) == dict.fromkeys(two, "kept")
    assert len(starts(root)) == 2
    assert briefly(run(less, force=True)) == dict.fromkeys(two, "ok")
    assert len(starts(root)) == 4
    assert len(list((root / "data" / "runs" / "small" / "_kept").iterdir())) == 2
    # More passes than were made, or another drafter under the same name, are measured again in the same place.
    assert briefly(run(less, "repeats=2")) == dict.fromkeys(two, "ok")
    assert briefly(run(less)) == dict.fromkeys(two, "kept")
    # Another workload is another run.
    assert briefly(run(less, "workload.num_prompts=3")) == dict.fromkeys(two, "ok")
    assert len(list((root / "data" / "runs" / "small").glob("*/status.json"))) == 4


def with_models(root: Path) -> tuple[Path, tuple[str, str]]:
    """The drafter's folder, and settings by which the campaign has models that can be read."""
    target = write_folder(root / "models" / "t", TARGET_CONFIG, {"w": ones(8)})
    drafter = write_folder(root / "models" / "d", CONFIG, draft_tensors())
    drafters = json.dumps([{"name": "d", "model_path": str(drafter)}])
    return drafter, (f"target.model_path={target}", f"drafters={drafters}")


def test_runs_of_a_drafter_that_is_another_one_now_are_not_kept_silently(root: Path) -> None:
    drafter, models = with_models(root)
    kept, less = dict.fromkeys(RUNS[:2], "kept"), (*models, "baseline_again=false")
    assert briefly(run(*less)) == dict.fromkeys(RUNS[:2], "ok")
    base, drafted = (read_run(run_folder(root, name)) for name in RUNS[:2])
    target_id, drafter_id = weights_id(root / "models" / "t"), weights_id(drafter)
    assert base.provenance.weights == {"target": target_id}
    assert drafted.provenance.weights == {"target": target_id, "drafter": drafter_id}
    os.utime(drafter / "model.safetensors")
    assert briefly(run(*less)) == kept

    write_folder(drafter, CONFIG, draft_tensors(norm__weight=OTHER))
    about = (root / "data" / "runs" / "small" / "drafters.json").read_bytes()
    with pytest.raises(SpecError, match=f"other weights of the drafter than lie in {drafter} now") as caught:
        run(*less, 'drafters.0.notes="trained for longer"')
    assert f"1 of the finished runs, first {drafted.spec.run_id}" in caught.value.what
    # Nothing was started, and the old runs are still described as they were.
    assert len(starts(root)) == 2 and read_run(drafted.path) == drafted
    assert (root / "data" / "runs" / "small" / "drafters.json").read_bytes() == about
    # The two ways out that the error names.
    assert briefly(run(*less, "name=other")) == dict.fromkeys(RUNS[:2], "ok")
    assert briefly(run(*less, force=True)) == dict.fromkeys(RUNS[:2], "ok")
    assert read_run(drafted.path).provenance.weights == {"target": target_id, "drafter": weights_id(drafter)}
    assert [path.name[: len(drafted.path.name)] for path in drafted.path.parent.glob("_kept/eagle3*")] == [
        drafted.path.name
    ]
    assert briefly(run(*less)) == kept


def test_another_config_of_the_target_concerns_the_baseline_too(root: Path) -> None:
    _, models = with_models(root)
    only = (*models, "only=baseline-default")
    run(*only)
    write_folder(root / "models" / "t", {**TARGET_CONFIG, "rope_theta": 5000.0})
    with pytest.raises(SpecError, match="other weights of the target than lie in"):
        run(*only)
    # A run that is to be measured with more passes does not stay.
    assert briefly(run(*only, "repeats=2")) == {RUNS[0]: "ok"}
    assert briefly(run(*only, "repeats=2")) == {RUNS[0]: "kept"}


def test_a_run_that_comes_back_after_a_failed_one_is_of_the_old_weights(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter, models = with_models(root)
    less = (*models, "baseline_again=false")
    run(*less)
    write_folder(drafter, CONFIG, draft_tensors(norm__weight=OTHER))
    play(monkeypatch, root, speculative=["--start-fault", "die"])
    assert briefly(run(*less, force=True)) == {RUNS[0]: "ok", RUNS[1]: "failed"}
    assert states(root)[RUNS[1]] == "ok"
    with pytest.raises(SpecError, match="other weights of the drafter"):
        run(*less)


# --- what the server says it uses --------------------------------------------------------------------------------


def test_resolved_settings_and_those_that_differ_are_recorded(root: Path) -> None:
    run("server.mem_fraction_static=0.7", "server.max_running_requests=4", "only=baseline-default")
    found = json.loads((run_folder(root, "baseline-default-c1") / "resolved.json").read_text())
    assert (found["mem_fraction_static"], found["max_running_requests"]) == ("0.7", 4)
    assert found["asked_differently"] == []


def test_asked_differently_compares_as_the_server_would() -> None:
    argv = [
        "docker",
        "run",
        "--name",
        "x",
        "python3",
        "--model-path",
        "m",
        "--port",
        "1",
        "--max-running-requests",
        "4",
    ]
    argv += ["--mem-fraction-static", "0.80", "--disable-cuda-graph", "--cuda-graph-bs", "1", "2", "--dtype", "auto"]
    info: dict[str, object] = {"max_running_requests": 1, "mem_fraction_static": 0.8, "disable_cuda_graph": True}
    info |= {"port": 2, "cuda_graph_bs": [1, 2], "dtype": "bfloat16", "api_key": None, "hf_token": "x"}
    assert recording.resolved(info, argv) == {
        **info,
        "hf_token": "***",
        "asked_differently": [
            {"setting": "max_running_requests", "asked": "4", "used": 1},
            {"setting": "dtype", "asked": "auto", "used": "bfloat16"},
        ],
    }


def test_forced_acceptance_counts_as_simulated(root: Path) -> None:
    run("sweep.0.simulated_accept_length=2", "baseline_again=false")
    origins = {run.spec.role: str(run.provenance.origin) for run in read_campaign(root / "data/runs/small").runs}
    assert origins == {"baseline": "measured", "speculative": "simulated"}


# --- starts and servers that fail --------------------------------------------------------------------------------


def test_a_start_that_fails_is_named_and_the_others_go_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, speculative=["--start-fault", "oom"])
    ended = run("max_concurrency=[1, 2]")
    assert briefly(ended) == {
        "baseline-default-c1": "ok",
        "baseline-default-c2": "ok",
        "eagle3-d-s3-k1-n4-c1": "failed",
        "eagle3-d-s3-k1-n4-c2": "failed",
        "baseline-default-again-c1": "ok",
        "baseline-default-again-c2": "ok",
    }
    failed = status(run_folder(root, "eagle3-d-s3-k1-n4-c2"))
    assert "the GPU ran out of memory" in failed["reason"]
    assert "CUDA out of memory" in (run_folder(root, "eagle3-d-s3-k1-n4-c2") / failed["log_file"]).read_text()
    play(monkeypatch, root)
    assert [run.reused for run in run("max_concurrency=[1, 2]")] == [True, True, False, False, True, True]
    assert set(states(root).values()) == {"ok"}


@pytest.mark.parametrize("at", [10, 24])
def test_a_server_that_dies_under_load_fails_its_run_and_the_rest_gets_another(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Of 6 + 1 + 6 requests at concurrency 1 and 6 + 2 + 6 at concurrency 2 the 10th or the 24th kills the server."""
    play(monkeypatch, root, first=["--fault", f"oom@{at}"])
    said: list[str] = []
    ended = run("max_concurrency=[1, 2]", said=said)
    bad = "baseline-default-c1" if at == 10 else "baseline-default-c2"
    assert {name for name, state in briefly(ended).items() if state != "ok"} == {bad}
    found = status(run_folder(root, bad))
    assert found["status"] == "failed"
    assert found["reason"].startswith("the server ended while it was measured: the GPU ran out of memory")
    assert len(starts(root)) == (4 if at == 10 else 3)
    assert any("another one is started" in line for line in said) == (at == 10)
    # What it answered before is still there.
    records, _ = read_requests(read_run(run_folder(root, bad)))
    assert any("error" not in record for record in records)


def test_a_server_that_dies_in_the_last_requests_does_not_pass_as_measured(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, root, first=["--fault", f"die@{WARMUP + PROMPTS}"])
    assert briefly(run("only=baseline-default")) == {"baseline-default-c1": "failed"}


def test_a_stalled_run_times_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, speculative=STALLED)
    assert briefly(run("request_timeout_s=0.3")) == dict(zip(RUNS, ("ok", "timed_out", "ok"), strict=True))
    assert "timeout" in status(run_folder(root, "eagle3-d-s3-k1-n4-c1"))["reason"]


def test_a_few_bad_answers_are_counted_and_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, baseline=["--fault", f"http500@{WARMUP + 2}"])
    assert set(briefly(run("only=baseline-default")).values()) == {"ok"}
    assert "1 of 6 requests failed: HTTP 500 (1)" in status(run_folder(root, "baseline-default-c1"))["reason"]


def test_a_server_that_never_becomes_ready(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, baseline=["--start-fault", "silent"])
    assert briefly(run("only=baseline-default", "ready_timeout_s=1")) == {"baseline-default-c1": "failed"}
    assert "not ready within 1 s" in status(run_folder(root, "baseline-default-c1"))["reason"]
    assert of_case(root) == []


def test_a_fault_of_ours_fails_one_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure.write_measured

    def write(path: Path, *arguments: Any, **more: Any) -> None:
        if path.name.startswith("eagle3"):
            raise ZeroDivisionError("a slip")
        whole(path, *arguments, **more)

    monkeypatch.setattr(measure, "write_measured", write)
    assert briefly(run()) == dict.fromkeys(RUNS, "ok") | {RUNS[1]: "failed"}
    assert status(run_folder(root, RUNS[1]))["reason"] == "ZeroDivisionError: a slip"


def test_telemetry_that_ended_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def ended(path: Path, *_: Any, **__: Any) -> Iterator[list[Problem]]:
        yield [Problem(str(path), "GPU telemetry ended: No space left on device")]

    monkeypatch.setattr(measure, "sampled", ended)
    assert briefly(run("only=baseline-default")) == {"baseline-default-c1": "ok"}
    assert "GPU telemetry ended: No space left on device" in status(run_folder(root, RUNS[0]))["reason"]


def test_with_force_a_finished_run_is_not_lost_to_a_failed_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    play(monkeypatch, root, baseline=["--fault", f"http500@{WARMUP + 2}+"], speculative=["--start-fault", "die"])
    assert set(briefly(run(force=True)).values()) == {"failed"}
    assert set(states(root).values()) == {"ok"}


# --- stopping ----------------------------------------------------------------------------------------------------


def stop_at(phase: str) -> Callable[[str], None]:
    """A listener that stops this process, as Ctrl-C does, when it first hears of a phase."""
    done = threading.Event()

    def say(text: str) -> None:
        if phase in text and not done.is_set():
            done.set()
            # To the main thread, which must be woken where it waits.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    return say


@pytest.mark.parametrize(
    ("phase", "options"),
    [
        ("starting", ["--load-s", "30"]),
        ("loading weights", ["--load-s", "30"]),
        ("capturing CUDA graphs", ["--capture-s", "30"]),
        ("warming up", ["--fault", "stall"]),
        ("    ready", ["--fault", "stall"]),
        ("requests", STALLED),
    ],
)
def test_ctrl_c_in_every_phase_leaves_finished_runs_and_no_server(
    root: Path, monkeypatch: pytest.MonkeyPatch, phase: str, options: list[str]
) -> None:
    run("only=baseline-default")
    play(monkeypatch, root, speculative=options)
    monkeypatch.setattr("workbench.progress.EVERY_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        measure.run_campaign(find_campaign("small"), say=stop_at(phase))
    assert of_case(root) == []
    assert states(root) == {"baseline-default-c1": "ok", "eagle3-d-s3-k1-n4-c1": "interrupted"}
    assert not list(root.rglob(".writing-*"))
    play(monkeypatch, root)
    assert briefly(run("baseline_again=false")) == dict(zip(RUNS[:2], ("kept", "ok"), strict=True))


@pytest.mark.parametrize("step", ["begin", "write_measured", "settle"])
def test_ctrl_c_while_files_are_written(root: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    run("only=baseline-default")
    whole = getattr(measure, step)

    def interrupted(path: Path, *arguments: Any, **more: Any) -> Any:
        done = whole(path, *arguments, **more)
        if path.name.startswith("eagle3"):
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patch:
        patch.setattr(measure, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run("baseline_again=false")
    assert status(run_folder(root, "eagle3"))["status"] == ("ok" if step == "settle" else "interrupted")
    again = run("baseline_again=false")
    assert [ended.reused for ended in again] == [True, step == "settle"]


def test_a_run_that_was_left_running_is_measured_again(root: Path) -> None:
    """As after kill -9: the folder says running."""
    run("baseline_again=false")
    folder = run_folder(root, RUNS[1])
    (folder / "status.json").write_text('{"status": "running"}')
    (folder / "requests.jsonl").write_text('{"prompt_index": 0, "com')
    assert briefly(run("baseline_again=false")) == dict(zip(RUNS[:2], ("kept", "ok"), strict=True))


# --- places ------------------------------------------------------------------------------------------------------


def test_two_commands_on_one_campaign_do_not_collide(root: Path) -> None:
    with alone(root / "data" / "runs" / "small"), pytest.raises(RunFolderError, match="another command measures"):
        run()
    assert starts(root) == []


def test_a_full_disk_ends_the_campaign_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("only=baseline-default")

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(measure, "_append_line", full)
        with pytest.raises(InputError, match="No space left on device") as caught:
            run()
    assert caught.value.next_step is not None and "free space" in caught.value.next_step
    assert states(root) == {"baseline-default-c1": "ok", "eagle3-d-s3-k1-n4-c1": "failed"}
    assert of_case(root) == []
    assert briefly(run()) == dict(zip(RUNS, ("kept", "ok", "ok"), strict=True))


@pytest.mark.parametrize("moment", ["a request", "the end", "Ctrl-C", "the next start"])
def test_a_campaign_folder_that_was_renamed_ends_the_campaign_and_is_not_begun_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder, elsewhere = root / "data" / "runs" / "small", root / "data" / "runs" / "other"
    name = {"a request": "_append_line", "the next start": "settle"}.get(moment, "_windows")
    whole = getattr(measure, name)

    def renaming(*arguments: Any, **more: Any) -> Any:
        done = whole(*arguments, **more)
        if not elsewhere.exists():
            folder.rename(elsewhere)
        if moment == "Ctrl-C":
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(measure, name, renaming)
    with pytest.raises(KeyboardInterrupt if moment == "Ctrl-C" else InputError) as caught:
        run()
    assert moment == "Ctrl-C" or "renamed or removed while it was measured" in str(caught.value)
    assert not folder.exists() and len(starts(root)) == 1 and of_case(root) == []
    monkeypatch.undo()
    play(monkeypatch, root)
    elsewhere.rename(folder)
    kept = "kept" if moment == "the next start" else "ok"
    assert briefly(run("baseline_again=false")) == {RUNS[0]: kept, RUNS[1]: "ok"}


def test_faults_of_the_campaign_stop_it_before_a_server_starts(root: Path) -> None:
    for settings, said in (
        (["launch_prefix=[]"], "no folder '/models/t' for the reference engine"),
        (["workload.num_prompts=9"], "9 prompts are asked for, few has 6"),
    ):
        with pytest.raises(SpecError, match=said):
            run(*settings)
    assert starts(root) == []


def test_what_preflight_refuses_is_skipped_unless_allowed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "refusals", lambda _: {"eagle3-d-s3-k1-n4": "wrong flag (use EAGLE3)"})
    assert briefly(run()) == dict.fromkeys(RUNS, "ok") | {RUNS[1]: str(RunState.SKIPPED)}
    assert status(run_folder(root, RUNS[1]))["reason"] == "wrong flag (use EAGLE3)"
    assert briefly(run(allow_refused=True)) == dict.fromkeys(RUNS, "kept") | {RUNS[1]: "ok"}


@pytest.mark.parametrize(
    "name",
    [
        *("campaign.json", "drafters.json", "progress.log", "_lock", "_command", "_notebooks", "_servers"),
        *("_servers/d", "_notebooks/10_run_campaign.ipynb", "_notebooks/10_run_campaign.status.json"),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_written_through_links_out_of_a_campaign(tmp_path: Path, name: str, there: bool) -> None:
    folder, elsewhere = tmp_path / "c", tmp_path / "elsewhere"
    (folder / name).parent.mkdir(parents=True)
    if there:
        elsewhere.write_text("theirs")
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(RunFolderError, match="leads out of the campaign folder") as caught, alone(folder):
        raise AssertionError("it was begun")
    assert caught.value.where == str(folder / name)
    assert elsewhere.read_text() == "theirs" if there else not elsewhere.exists()


def test_a_pipe_in_a_campaign_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress.log")
    with pytest.raises(RunFolderError, match="is a pipe or a device"), alone(tmp_path):
        raise AssertionError("it was begun")
    (tmp_path / "progress.log").unlink()
    (tmp_path / "drafters.json").write_text("[]")
    (tmp_path / "mine").symlink_to("drafters.json")  # within the campaign
    with alone(tmp_path):
        pass
