from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_files import AIPERF, BASE_SERVER, EAGLE3, GRID, REPORT, SERVING, guidellm, vllm_log
from log_samples import recorded

from workbench.analysis.campaign import diagnose_logs
from workbench.analysis.speedup import speedup_df
from workbench.cli import main
from workbench.errors import InputError, UsageError
from workbench.files import read_chunks
from workbench.importing import Outcome, Request, Stated, import_files, taken
from workbench.store import Campaign, RunFolder, read_campaign
from workbench.table import load_tables

PLAIN = {**SERVING, "server_info": BASE_SERVER, "accept_length": None, "output_throughput": 655.36}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, *entries: Any) -> Path:
    path = folder / name
    path.write_text("".join(f"{e if isinstance(e, str) else json.dumps(e)}\n" for e in entries), encoding="utf-8")
    return path


def bring(*files: Path, **stated: Any) -> tuple[Outcome, list[str]]:
    said: list[str] = []
    return import_files(Request(files, "pile", Stated(**stated)), said.append), said


def campaign(project: Path) -> Campaign:
    found = read_campaign(project / "data" / "runs" / "pile")
    assert found.problems == ()
    return found


def arms(project: Path) -> dict[str, RunFolder]:
    return {run.spec.server_id: run for run in campaign(project).runs}


def test_results_become_runs_that_can_be_compared(project: Path) -> None:
    outcome, said = bring(put(project, "serving.jsonl", PLAIN, SERVING))
    assert (outcome.exit_code, said) == (0, [])
    assert "2 runs imported" in outcome.text and "workbench report --campaign pile" in outcome.text
    found = arms(project)
    assert set(found) == {"baseline", "eagle3-EAGLE3-LLaMA3.1-8B-s3-k1-n4"}
    spec = found["eagle3-EAGLE3-LLaMA3.1-8B-s3-k1-n4"]
    assert spec.provenance.origin.value == "imported"
    assert spec.provenance.source.startswith("sglang.bench_serving: serving.jsonl, line 2 (SHA-256 ")
    assert (spec.provenance.machine, spec.provenance.recorded_at, spec.provenance.gpu_name) == (None, None, None)
    assert (spec.spec.target.name, spec.spec.server.tp_size) == ("Llama-3.1-8B-Instruct", 2)
    tables = load_tables(project / "data" / "runs" / "pile")
    row = speedup_df(tables.runs, tables.requests).iloc[0]
    # 1310.72 / 655.36, without a verdict: one figure an arm.
    assert (row["speedup"], row["verdict"]) == (2.0, "not decidable")
    assert tables.runs.set_index("role").loc["speculative", "num_requests"] == 64


def test_secrets_of_a_server_s_account_are_hidden(project: Path) -> None:
    bring(put(project, "serving.jsonl", PLAIN, SERVING))
    written = "".join(path.read_text() for path in (project / "data" / "runs").rglob("*.json"))
    assert "a-secret-of-the-server" not in written and "***" in written


def test_nothing_is_imported_twice(project: Path) -> None:
    file = put(project, "serving.jsonl", PLAIN, SERVING)
    bring(file)
    outcome, _ = bring(file)
    assert "0 runs imported" in outcome.text and "there already: 2 runs" in outcome.text
    assert len(campaign(project).runs) == 2


def test_a_run_that_is_there_and_damaged_costs_only_itself(project: Path) -> None:
    first = put(project, "serving.jsonl", PLAIN)
    bring(first)
    (there,) = (project / "data" / "runs" / "pile").glob("*/spec.json")
    there.unlink()
    outcome, said = bring(first, put(project, "other.jsonl", SERVING))
    assert "1 run imported" in outcome.text and outcome.exit_code == 1
    assert any(
        "serving.jsonl" in line and f"{there.parent.name}, which cannot be used (spec.json: does not exist)" in line
        for line in said
    )
    assert "refused: 1 result there already, otherwise or damaged" in outcome.text


@pytest.mark.parametrize("name", ["spec.json", "provenance.json", "reported.json", "resolved.json", "status.json"])
@pytest.mark.parametrize("how", ["link", "pipe"])
def test_nothing_is_written_through_an_unfinished_run(project: Path, tmp_path: Path, name: str, how: str) -> None:
    first = put(project, "serving.jsonl", PLAIN)
    bring(first)
    (there,) = (path.parent for path in (project / "data" / "runs" / "pile").glob("*/spec.json"))
    (there / "status.json").unlink()
    (there / name).unlink(missing_ok=True)
    elsewhere = put(tmp_path, "elsewhere", "theirs")
    (there / name).symlink_to(elsewhere) if how == "link" else os.mkfifo(there / name)
    outcome, said = bring(first, put(project, "other.jsonl", SERVING))
    assert "1 run imported" in outcome.text and outcome.exit_code == 1
    why = "leads out of the campaign folder" if how == "link" else "is a pipe or a device, no file"
    assert len(said) == 1 and f"is there as {there.name}, which cannot be used ({name}: {why})" in said[0]
    assert elsewhere.read_text() == "theirs\n"


def test_copies_of_an_import_that_was_killed_are_removed(project: Path) -> None:
    left = project / "data" / "runs" / "_importing-1.1.0123456789ab"  # the first process did not begin at tick 1
    left.mkdir(parents=True)
    (left / "tmpx.log").write_text("Bearer secret")
    bring(put(project, "serving.jsonl", PLAIN))
    assert list((project / "data" / "runs").glob("_importing-*")) == []


def test_nothing_is_imported_into_a_folder_elsewhere(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / "data" / "runs" / "pile").mkdir(parents=True)
    (project / "data" / "runs" / "pile" / "_servers").symlink_to(elsewhere)
    with pytest.raises(InputError, match="leads out of the campaign folder"):
        bring(put(project, "vllm.log", vllm_log()))
    assert list(elsewhere.iterdir()) == []


def test_every_tool_at_once(project: Path) -> None:
    outcome, said = bring(
        put(project, "grid.jsonl", {**GRID, "steps": 0, "topk": 0, "num_draft_tokens": 0}, GRID),
        put(project, "eagle3.jsonl", json.dumps(EAGLE3, indent=4)),
        put(project, "report.json", REPORT),
        put(project, "profile_export_aiperf.json", AIPERF),
    )
    assert (outcome.exit_code, said) == (0, [])
    rows = load_tables(project / "data" / "runs" / "pile").runs.set_index("source")
    assert len(rows) == 7 and set(rows["origin"]) == {"imported"}
    by_tool = {source.partition(":")[0]: row for source, row in rows.iterrows() if row["role"] == "speculative"}
    assert by_tool["AIPerf"]["accept_length"] == 3.18 and by_tool["AIPerf"]["engine"] == "unknown"
    assert by_tool["SGLang bench_speculative"]["decode_tok_per_s"] == 600.0
    repeated = rows[rows["num_draft_tokens"] == 32].iloc[0]
    assert (repeated["output_tok_per_s_low"], repeated["output_tok_per_s_high"]) == (118.0, 120.0)
    assert len(campaign(project).drafters) == 2


def test_an_arm_that_nobody_tells_is_left_out_and_said(project: Path) -> None:
    file = put(project, "g.json", guidellm({"type_": "synchronous"}, {"type_": "concurrent", "streams": 8}))
    with pytest.raises(InputError, match="nothing to import in 1 file") as raised:
        bring(file)
    assert "--baseline or --speculative" in str(raised.value)
    assert not (project / "data" / "runs" / "pile" / "campaign.json").exists()
    outcome, _ = bring(file, speculative=False, machine="one H200")
    assert outcome.exit_code == 0
    runs = campaign(project).runs
    assert [run.spec.role for run in runs] == ["baseline"] * 2
    assert {run.provenance.machine for run in runs} == {"one H200"}


def test_what_the_user_states_never_replaces_what_a_file_tells(project: Path) -> None:
    bring(
        put(project, "serving.jsonl", PLAIN, {**SERVING, "max_concurrency": None}),
        speculative=True,
        target="Other",
        prompts="mine",
        concurrency=3,
    )
    runs = {run.spec.role: run.spec for run in campaign(project).runs}
    assert set(runs) == {"baseline", "speculative"}
    assert runs["baseline"].target.name == "Llama-3.1-8B-Instruct"
    assert {run.workload.prompt_set for run in runs.values()} == {"random, 1024 in, 256 out, ratio 0.5"}
    assert (runs["baseline"].workload.max_concurrency, runs["speculative"].workload.max_concurrency) == (8, 3)


def test_unknown_prompts_are_those_of_their_file_alone(project: Path) -> None:
    plain = {**PLAIN, "dataset_name": None}
    bring(put(project, "a.jsonl", plain), put(project, "b.jsonl", {**SERVING, "dataset_name": None}))
    tables = load_tables(project / "data" / "runs" / "pile")
    assert set(tables.runs["prompt_set"]) == {"not stated (a.jsonl)", "not stated (b.jsonl)"}
    assert "no baseline" in speedup_df(tables.runs, tables.requests).iloc[0]["reason"]


def test_tools_are_not_compared_with_each_other(project: Path) -> None:
    report = guidellm({"type_": "concurrent", "streams": 8})
    report["config"]["spec"]["data"] = ["random, 1024 in, 256 out, ratio 0.5"]
    report["benchmarks"][0]["config"]["backend"]["model"] = BASE_SERVER["model_path"]
    bring(put(project, "g.json", report), put(project, "s.jsonl", SERVING), speculative=False)
    tables = load_tables(project / "data" / "runs" / "pile")
    assert tables.runs["prompt_set"].nunique() == 1
    assert "no baseline" in speedup_df(tables.runs, tables.requests).iloc[0]["reason"]


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        ({"accept_length": 0.4}, "accept length 0.4 cannot be"),
        ({"accept_length": 7.0}, "accept length 7 cannot be"),  # of at most 4
    ],
)
def test_figures_that_cannot_be_are_left_out_and_said(project: Path, changes: dict[str, Any], left_out: str) -> None:
    outcome, said = bring(put(project, "s.jsonl", PLAIN, {**SERVING, **changes}))
    assert outcome.exit_code == 1
    assert any(left_out in line and "s.jsonl, line 2" in line for line in said)
    assert len(campaign(project).runs) == 2


def test_a_run_that_was_broken_off_is_not_judged(project: Path) -> None:
    bring(put(project, "a.json", {**AIPERF, "was_cancelled": True}))
    (run,) = campaign(project).runs
    assert (run.status.status.value, run.status.reason) == ("interrupted", "it was cancelled")


@pytest.mark.parametrize("packed", [False, True])
def test_vllm_logs(project: Path, packed: bool) -> None:
    files = []
    for name, text in (("spec.log", vllm_log()), ("plain.log", vllm_log("None"))):
        path = project / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        files.append(path)
    outcome, said = bring(*files, concurrency=8, prompts="mt_bench")
    assert (outcome.exit_code, said) == (0, [])
    runs = {run.spec.role: run for run in campaign(project).runs}
    spec = runs["speculative"].spec
    assert (spec.engine, spec.drafter, spec.target.name, spec.server.tp_size) == ("vllm", "qwen3-eagle3", "Qwen3-8B", 2)
    assert spec.spec_decode is not None
    # vLLM's 3 tokens are 3 steps; SGLang counts the root as a draft token, too.
    shape = spec.spec_decode
    assert (shape.speculative_num_steps, shape.speculative_num_draft_tokens) == (3, 4)
    tables = load_tables(project / "data" / "runs" / "pile")
    row = tables.runs.set_index("role").loc["speculative"]
    assert row["accept_length"] == pytest.approx(2.41) and row["accept_length_source"] == "log"
    assert row["log_median_tok_per_s"] == 900.0


def test_a_plain_vllm_log_is_no_fault_of_a_campaign(project: Path) -> None:
    files = [put(project, "spec.log", vllm_log()), put(project, "plain.log", vllm_log("None"))]
    bring(*files, concurrency=8, prompts="mt_bench")
    found = diagnose_logs(load_tables(project / "data" / "runs" / "pile"))
    # The speculative log is judged beside the plain one, which says nothing but its speed.
    (diagnosis,) = found.values()
    assert "1.00x" in diagnosis.verdict


def test_a_plain_vllm_log_without_its_start_does_not_tell_its_arm(project: Path) -> None:
    path = put(project, "plain.log", "".join(vllm_log("None").splitlines(keepends=True)[1:]))
    with pytest.raises(InputError, match="nothing to import"):
        bring(path)
    bring(path, speculative=False)
    assert [run.spec.role for run in campaign(project).runs] == ["baseline"]


def test_sglang_logs_tell_what_they_are(project: Path) -> None:
    path = project / "server.log"
    path.write_bytes(recorded("sim25-s3"))
    bring(path)
    (run,) = campaign(project).runs
    assert run.spec.engine == "sglang" and run.spec.role == "speculative"
    assert run.spec.spec_decode is not None and run.spec.spec_decode.speculative_num_steps == 3
    assert run.spec.workload.max_concurrency is None
    # What looks like a secret is blanked out, and offsets stay.
    assert run.log is not None and run.log.stat().st_size == path.stat().st_size
    assert load_tables(project / "data" / "runs" / "pile").runs["accept_length"].notna().all()


def test_files_that_are_something_else(project: Path) -> None:
    good = put(project, "s.jsonl", PLAIN)
    broken = project / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(json.dumps(SERVING).encode() * 200)[:60])
    others = [put(project, "note.txt", "hello"), put(project, "x.json", {"a": 1}), project / "none", broken]
    outcome, said = bring(good, *others)
    assert outcome.exit_code == 1
    assert [line.split(": ")[1].rpartition("/")[2] for line in said] == [
        "note.txt",
        "x.json",
        "none",
        "broken.jsonl.gz",
    ]
    assert len(campaign(project).runs) == 1


@pytest.mark.parametrize("name", ["../up", "_hidden", "a b", ""])
def test_a_campaign_needs_a_name_for_a_folder(project: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name for a campaign"):
        import_files(Request((put(project, "s.jsonl", PLAIN),), name))


def test_an_existing_campaign_keeps_what_it_is(project: Path) -> None:
    bring(put(project, "a.jsonl", PLAIN), machine="first")
    before = (project / "data" / "runs" / "pile" / "campaign.json").read_text()
    bring(put(project, "b.jsonl", SERVING), machine="second")
    assert (project / "data" / "runs" / "pile" / "campaign.json").read_text() == before
    assert len(campaign(project).runs) == 2


def test_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = put(project, "g.json", guidellm({"type_": "throughput"}))
    assert main(["import", str(file), "--campaign", "pile"]) == 3
    assert "GuideLLM does not tell whether a drafter was used" in capsys.readouterr().err
    assert main(["import", str(file), "--campaign", "pile", "--baseline", "--concurrency", "32"]) == 0
    assert "baseline: 1 run" in capsys.readouterr().out
    assert campaign(project).runs[0].spec.workload.max_concurrency == 32


def drafts(path: str, **more: Any) -> dict[str, Any]:
    return {**SERVING, "server_info": {**SERVING["server_info"], "speculative_draft_model_path": path}, **more}


def test_of_a_file_that_grew_only_the_new_results_are_imported(project: Path) -> None:
    file = put(project, "serving.jsonl", PLAIN)
    bring(file)
    put(project, "serving.jsonl", PLAIN, SERVING)
    outcome, _ = bring(file)
    assert "1 run imported" in outcome.text and "there already: 1 run" in outcome.text
    # The same results in another file, in another order.
    outcome, _ = bring(put(project, "copy.jsonl", SERVING, PLAIN))
    assert "0 runs imported" in outcome.text
    assert len(campaign(project).runs) == 2


@pytest.mark.parametrize(("then", "why"), [({"speculative": True}, "with baseline"), ({"concurrency": 4}, "2, now")])
def test_one_result_is_not_two_runs(project: Path, then: dict[str, Any], why: str) -> None:
    file = put(project, "g.json", guidellm({"type_": "throughput"}))
    bring(file, speculative=False, concurrency=2)
    (before,) = campaign(project).runs
    outcome, said = bring(file, **{"speculative": False, "concurrency": 2, **then})
    assert outcome.exit_code == 1 and "refused: 1 result" in outcome.text
    assert f"it is there already as {before.path.name}" in said[0] and why in said[0]
    assert [run.path for run in campaign(project).runs] == [before.path]


def test_drafters_of_one_last_part_are_told_apart(project: Path) -> None:
    a, b = drafts("/runA/epoch_3"), drafts("/runB/epoch_3", output_throughput=900.0)
    bring(put(project, "s.jsonl", a, b))
    bring(put(project, "t.jsonl", drafts("/runB/epoch_3/", output_throughput=901.0), PLAIN))
    found = campaign(project)
    assert {drafter.name: drafter.model_path for drafter in found.drafters} == {
        "epoch_3": "/runA/epoch_3",
        "runB-epoch_3": "/runB/epoch_3",
    }
    assert sorted(run.spec.drafter or "" for run in found.runs) == ["", "epoch_3", "runB-epoch_3", "runB-epoch_3"]


def test_a_log_that_grew_takes_the_place_of_what_was_there(project: Path) -> None:
    whole = vllm_log().encode()
    # Long enough that its beginning tells it from others.
    start, rest = whole.splitlines(keepends=True)[0], b"".join(whole.splitlines(keepends=True)[1:])
    path = project / "server.log"
    path.write_bytes(start + b"INFO 01-01 00:00:00 waiting\n" * 200 + rest)
    bring(path, concurrency=8)
    (before,) = campaign(project).runs
    with path.open("ab") as file:
        file.write(rest)
    outcome, _ = bring(path)
    assert "0 runs imported" in outcome.text and "grown since and imported again: 1 log" in outcome.text
    (after,) = campaign(project).runs
    assert after.path == before.path and after.spec.workload.max_concurrency == 8
    assert after.log is not None and after.log.stat().st_size == path.stat().st_size
    assert after.provenance.source != before.provenance.source


def test_a_log_is_read_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is overwritten as soon as it was read: what is judged is what is kept."""
    path = project / "server.log"
    content = recorded("sim25-s3")
    path.write_bytes(content)

    def once(file: Path, faults: Any) -> Iterator[bytes]:
        yield from read_chunks(file, faults)
        file.write_text("something else")

    monkeypatch.setattr(taken, "read_chunks", once)
    bring(path)
    (run,) = campaign(project).runs
    assert run.log is not None and run.log.stat().st_size == len(content)
    assert [entry.name for entry in (project / "data" / "runs").iterdir()] == ["pile"]


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_pipes_and_devices_are_refused_at_once(project: Path, kind: str) -> None:
    path = Path("/dev/zero")
    if kind == "fifo":
        path = project / "pipe"
        os.mkfifo(path)
    outcome, said = bring(put(project, "s.jsonl", PLAIN), path)
    assert outcome.exit_code == 1
    assert said == [f"left out: {path}: a pipe or a device, no file: save what comes from it, and name that file"]


@pytest.mark.parametrize("speed", [float("nan"), "fast", -5, None])
def test_a_result_without_a_usable_speed_is_left_out_and_said(project: Path, speed: object) -> None:
    outcome, said = bring(put(project, "s.jsonl", PLAIN, {**SERVING, "output_throughput": speed}))
    assert outcome.exit_code == 1
    assert "s.jsonl, line 2: no usable speed in this result; it is left out" in said[-1]
    assert len(campaign(project).runs) == 1


def test_a_file_of_nothing_but_unusable_results_says_only_that(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = put(project, "s.jsonl", {**SERVING, "output_throughput": "fast"})
    assert main(["import", str(file), "--campaign", "pile"]) == 3
    said = capsys.readouterr().err
    assert "no usable speed" in said and "neither results" not in said


def test_names_that_no_campaign_may_have(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = put(project, "s.jsonl", PLAIN)
    assert main(["import", str(file), "--campaign=--"]) == 2
    (project / "data" / "recorded" / "h200").mkdir(parents=True)
    assert main(["import", str(file), "--campaign", "h200"]) == 2
    assert "a recorded campaign has this name" in capsys.readouterr().err
    assert not (project / "data" / "runs").exists()


@pytest.mark.parametrize("content", ["[{", "{}", '[{"name": 5}]'])
def test_damaged_drafters_are_an_error_and_stay(project: Path, content: str) -> None:
    bring(put(project, "s.jsonl", PLAIN, SERVING))
    path = project / "data" / "runs" / "pile" / "drafters.json"
    path.write_text(content)
    with pytest.raises(InputError, match="damaged, so nothing is imported"):
        bring(put(project, "t.jsonl", drafts("/other")))
    assert path.read_text() == content


def test_encodings(project: Path) -> None:
    good, wide, blind = project / "good.json", project / "wide.json", project / "blind.json"
    good.write_text(json.dumps(PLAIN), encoding="utf-8-sig")
    wide.write_text(json.dumps(SERVING), encoding="utf-16")
    blind.write_text(json.dumps(SERVING), encoding="utf-16-le")
    outcome, said = bring(good, wide, blind)
    assert outcome.exit_code == 1
    assert said == [f"left out: {path}: text in UTF-16: save it as UTF-8" for path in (wide, blind)]
    assert len(campaign(project).runs) == 1


def test_a_result_file_that_is_too_large_says_so(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "MOST_SMALL_BYTES", 2_000)
    outcome, said = bring(put(project, "s.jsonl", PLAIN), put(project, "t.jsonl", *[SERVING] * 9))
    assert outcome.exit_code == 1
    assert "larger than 64 MiB" in said[0]
