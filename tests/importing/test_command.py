from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from bench_files import AIPERF, BASE_SERVER, EAGLE3, GRID, REPORT, SERVING, guidellm, vllm_log
from log_samples import recorded

from workbench.analysis.campaign import diagnose_logs
from workbench.analysis.speedup import speedup_df
from workbench.cli import main
from workbench.errors import InputError, UsageError
from workbench.importing import Outcome, Request, Stated, import_files
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
        ({"output_throughput": -5}, "output speed -5 cannot be"),
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
