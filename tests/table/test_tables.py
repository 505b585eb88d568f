"""Whole campaign folders to tables."""

from __future__ import annotations

import gzip
import os
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from log_samples import N4_GRAPH, N5_NO_GRAPH
from run_folders import SPECULATIVE, campaign_info, cut_gzip, write_campaign, write_run, write_text

from workbench.analysis.cost import cost_df
from workbench.analysis.speedup import drift_df, fairness_df, same_points_df, speedup_df
from workbench.errors import RunFolderError
from workbench.paths import recorded_dir
from workbench.store import read_campaign
from workbench.table import TABLES, Tables, load_tables, reading, reference_points
from workbench.table.columns import frame

RETRACTED = (
    b"[2026-01-05 10:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.5\n"
)
FIELDS = {"decode_windows": "windows"}


def asked(algorithm: str | None, steps: int | None, topk: int | None, tokens: int | None) -> dict[str, object]:
    given = {
        "speculative_algorithm": algorithm,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }
    return {"drafter": "d", "spec_decode": given}


@cache
def recorded(campaign: str) -> Tables:
    return load_tables(recorded_dir() / campaign)


def said(tables: Tables, folder: Path) -> list[tuple[str, str]]:
    return [(problem.where.removeprefix(f"{folder}/"), problem.what) for problem in tables.problems]


# --- recorded campaigns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("campaign", ["kimi_k25", "h200_smollm2", "h200_first_trial"])
def test_recorded_campaigns_fill_their_tables_without_a_problem(campaign: str) -> None:
    tables = recorded(campaign)
    assert tables.problems == ()
    assert list(tables.campaigns) == [campaign]
    for name, columns in TABLES.items():
        table = getattr(tables, FIELDS.get(name, name))
        assert table.dtypes.equals(frame(columns, []).dtypes), name
    assert not tables.runs.duplicated(["campaign", "run_id"]).any()


def test_the_run_with_six_steps_adds_up() -> None:
    # By jq and awk over its 20 records: the summed histogram, 1562 verify steps, 3183 tokens, 4.73897 s.
    runs = recorded("h200_first_trial").runs.set_index("run_id")
    row = runs.loc["eagle3-n24000L-s6-mix_heldout-c1"]
    assert row["steps_histogram"] == [818, 352, 177, 76, 59, 36, 44]
    assert (row["spec_verify_ct"], row["completion_tokens"], row["num_requests"]) == (1562, 3183, 20)
    # 818 + 2 * 352 + 3 * 177 + 4 * 76 + 5 * 59 + 6 * 36 + 7 * 44 = 3176
    assert row["accept_length"] == row["accept_length_requests"] == pytest.approx(3176 / 1562)
    assert row["accept_length_source"] == "requests"
    assert row["accept_rate"] == pytest.approx((3176 / 1562 - 1) / 6)
    assert row["output_tok_per_s"] == pytest.approx(3183 / 4.73897, rel=1e-5)
    assert (row["num_steps"], row["eagle_topk"], row["num_draft_tokens"]) == (6, 1, 7)
    assert (row["role"], row["origin"], row["training_samples"]) == ("speculative", "recorded", 22_383)


def test_a_run_of_several_passes_counts_them() -> None:
    runs = recorded("h200_first_trial").runs.set_index("run_id")
    row = runs.loc["base-wave1-mix_heldout-c1"]
    assert (row["repeats"], row["num_requests"], row["completion_tokens"]) == (2, 40, 7224)
    assert pd.isna(row["accept_length"])


def test_windows_belong_to_the_run_whose_span_holds_them() -> None:
    tables = recorded("h200_smollm2")
    counts = tables.windows.groupby("run_id").size()
    # Decode lines with 1, 8 and 32 running in the whole log, less the 7 of the warm-up.
    assert counts[["base-c1", "base-c8", "base-c32"]].tolist() == [205, 51, 51]
    assert tables.runs.set_index("run_id")["num_windows"].loc["base-c8"] == 51
    assert len(tables.logs["h200_smollm2", "base"].windows) == 314
    assert set(tables.windows["server_id"]) == {"base", "eagle-flag", "sim25-s3"}


def test_noted_figures_stay_ranges_and_have_no_requests() -> None:
    tables = recorded("kimi_k25")
    row = tables.runs.set_index("run_id").loc["custom-v3-n16-nograph"]
    assert (row["accept_length_low"], row["accept_length"], row["accept_length_high"]) == (2.0, 2.25, 2.5)
    assert (row["accept_length_source"], row["output_tok_per_s"], row["cuda_graph"]) == ("reported", 56.7, False)
    assert tables.requests.empty


def test_offline_acceptance_is_one_row_a_number_of_steps() -> None:
    offline = recorded("h200_first_trial").offline
    one = offline[(offline["drafter"] == "n8000") & (offline["served_as"] == "mix_heldout")]
    assert one["num_steps"].tolist() == [1, 2, 3, 4, 5, 6]
    assert one["accept_length"].is_monotonic_increasing


def test_several_campaigns_in_one_table() -> None:
    tables = load_tables(recorded_dir() / "kimi_k25", recorded_dir() / "h200_smollm2")
    assert tables.runs.groupby("campaign").size().to_dict() == {"kimi_k25": 12, "h200_smollm2": 9}
    assert list(tables.campaigns) == ["kimi_k25", "h200_smollm2"]


def test_reference_points_are_read() -> None:
    assert {"target", "drafter", "training_samples", "accept_length", "source"} <= set(reference_points())


# --- campaigns that are not as they should be --------------------------------------------------------------------


def test_a_campaign_without_runs_gives_empty_tables(tmp_path: Path) -> None:
    tables = load_tables(write_campaign(tmp_path / "c"))
    for name, columns in TABLES.items():
        table = getattr(tables, FIELDS.get(name, name))
        assert table.empty
        assert table.dtypes.equals(frame(columns, []).dtypes), name
    assert [problem.what for problem in tables.problems] == ["no run can be read in this campaign"]


def test_no_campaign_at_all(tmp_path: Path) -> None:
    assert load_tables().runs.empty
    with pytest.raises(RunFolderError):
        load_tables(tmp_path)


def test_of_two_campaigns_with_one_name_the_first_is_used(tmp_path: Path) -> None:
    for place, run in (("recorded", "old"), ("runs", "new")):
        write_run(write_campaign(tmp_path / place / "c") / run)
    tables = load_tables(tmp_path / "recorded" / "c", tmp_path / "runs" / "c")
    assert tables.runs["run_id"].tolist() == ["old"]
    assert said(tables, tmp_path) == [("runs/c", "a campaign of this name was read already; left out")]


def test_odd_names_come_through_unchanged(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "a <b>campaign")
    names = ['say "hi"', "it's", "<script>alert(1)<", "two  words", "${HOME}", "100%", "naïve ☃"]
    for name in names:
        write_run(folder / name, label=f"{name}\n& more", log=N5_NO_GRAPH)
    tables = load_tables(folder)
    assert tables.problems == ()
    assert sorted(tables.runs["run_id"]) == sorted(names)
    assert set(tables.windows["run_id"]) == set(names)
    assert tables.runs["label"].str.endswith("\n& more").all()


def test_names_of_folders_may_be_any_bytes(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / os.fsdecode(b"c\xff"))
    write_text(folder / "campaign.json", campaign_info("c"))
    write_run(folder / os.fsdecode(b"r\xfe"), campaign="c", run_id="r", log=N5_NO_GRAPH)
    tables = load_tables(folder)
    assert tables.runs[["campaign", "run_id", "num_windows"]].values.tolist() == [["c\\udcff", "r\\udcfe", 3]]
    assert tables.windows["run_id"].unique().tolist() == ["r\\udcfe"]
    assert len(tables.problems) == 2
    "".join(problem.where + problem.what for problem in tables.problems).encode()


def test_one_run_that_cannot_be_read_does_not_cost_the_others(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "good", requests=[{"completion_tokens": 10, "latency_s": 0.5}])
    write_run(folder / "half", files={"status.json": '{"status": "o'})
    write_run(folder / "unfinished", status={"status": "running"})
    tables = load_tables(folder)
    assert tables.runs.set_index("run_id")["status"].to_dict() == {"good": "ok", "unfinished": "running"}
    assert [where for where, _ in said(tables, folder)] == ["half/status.json"]


def test_values_that_no_table_can_hold_are_problems(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    lines = [
        '{"completion_tokens": 11, "latency_s": 0.5, "spec_verify_ct": 5, "steps_histogram": [2, 1, 2]}',
        '{"completion_tokens": 9223372036854775808, "latency_s": 1e400}',
        '{"completion_tokens": true, "prompt_index": -1, "latency_s": NaN}',
        '{"steps_histogram": [true], "error": "\\ud800"}',
    ]
    write_run(folder / "r", requests=lines, **SPECULATIVE)
    tables = load_tables(folder)
    assert tables.requests["completion_tokens"].tolist() == [11, pd.NA, pd.NA, pd.NA]
    assert tables.runs["output_tok_per_s"].tolist() == [22.0]
    assert tables.runs["accept_length"].tolist() == [2.0]
    assert sorted(what for where, what in said(tables, folder) if where == "r/requests.jsonl") == [
        "completion_tokens is left out, not a whole number from 0, in 2 requests, the first is 2",
        "latency_s is left out, not a number of seconds from 0, in 2 requests, the first is 2",
        "prompt_index is left out, not a whole number from 0, in request 3",
        "steps_histogram is left out, not a list of whole numbers from 0, in request 4",
    ]


def test_a_drafter_that_nobody_lists_is_said(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", **SPECULATIVE)
    tables = load_tables(folder)
    assert tables.runs["drafter"].tolist() == ["d"]
    assert said(tables, folder) == [("r", "drafter 'd' is not in drafters.json")]


def test_a_log_that_cannot_be_read_leaves_the_run(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_text(folder / "_servers" / "s" / "server.log.gz", b"\x1f\x8bbroken")
    for name in ("a", "b"):
        write_run(folder / name, status={"log_file": "../_servers/s/server.log.gz"}, requests=[{"latency_s": 1}])
    tables = load_tables(folder)
    assert len(tables.runs) == len(tables.requests) == 2
    assert tables.logs == {}
    assert [(where, what.endswith("the rest of the run is used")) for where, what in said(tables, folder)] == [
        ("_servers/s/server.log.gz", True)
    ]


def test_a_cut_log_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    text = N5_NO_GRAPH.splitlines(keepends=True)[0] * 2000
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", files={"server.log.gz": cut_gzip(b"".join(text[k : k + 1] for k in range(len(text))))})
    tables = load_tables(folder)
    assert 0 < tables.runs["num_windows"].item() < 2000
    assert said(tables, folder)[0][1].startswith("the gzip file is cut off")


def test_half_of_the_counters_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", files={"metrics.after.prom": "a 1\n"})
    tables = load_tables(folder)
    assert len(tables.runs) == 1
    assert said(tables, folder) == [("r/metrics.before.prom", "does not exist; the rest of the run is used")]


def test_requests_that_cannot_be_read_are_a_problem_and_no_crash(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", files={"requests.jsonl.gz": b"\x1f\x8bbroken"})
    tables = load_tables(folder)
    assert (len(tables.runs), len(tables.requests)) == (1, 0)
    assert said(tables, folder)[0][0] == "r/requests.jsonl.gz"


# --- logs and spans ----------------------------------------------------------------------------------------------


def test_a_shared_log_is_read_once_and_split_by_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = N4_GRAPH.splitlines(keepends=True)
    log = RETRACTED + first + second + RETRACTED + RETRACTED + third
    at = len(RETRACTED + first)
    folder = write_campaign(tmp_path / "c")
    write_text(folder / "_servers" / "s" / "server.log.gz", gzip.compress(log))
    spans = {"early": [[0, at]], "late": [[at, len(log)]], "both": [[0, 5], [at, at + 1]], "none": [[5, 6]]}
    for name, own in spans.items():
        write_run(folder / name, server_id="s", status={"log_file": "../_servers/s/server.log.gz", "log_spans": own})
    reads = []
    real = reading.read_chunks
    monkeypatch.setattr(reading, "read_chunks", lambda path, problems: reads.append(path) or real(path))
    tables = load_tables(folder)
    assert len(reads) == 1
    runs = tables.runs.set_index("run_id")
    assert runs["num_windows"].to_dict() == {"early": 1, "late": 2, "both": 1, "none": 0}
    assert runs["num_retractions"].to_dict() == {"early": 1, "late": 2, "both": 1, "none": 0}
    assert runs["log_median_tok_per_s"].dropna().to_dict() == {"early": 637.19, "late": 597.79, "both": 597.79}
    assert tables.logs["c", "s"].windows["run_id"].tolist() == ["", "", ""]


def test_a_run_without_spans_owns_its_whole_log(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", log=N4_GRAPH)
    tables = load_tables(folder)
    assert tables.windows["line"].tolist() == [1, 2, 3]
    assert tables.runs["peak_queue_req"].tolist() == [32]


# --- from folders to what analysis says --------------------------------------------------------------------------


def test_sixteen_and_five_draft_tokens_of_a_chain_become_one_point(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c", drafters=[{"name": "d"}])
    for tokens in (16, 5):
        decode = {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": tokens}
        write_run(folder / f"n{tokens}", drafter="d", spec_decode={"speculative_algorithm": "EAGLE3", **decode})
    runs = load_tables(folder).runs.set_index("run_id")
    assert runs["asked_num_draft_tokens"].to_dict() == {"n16": 16, "n5": 5}
    assert runs["num_draft_tokens"].to_dict() == {"n16": 4, "n5": 4}
    (merged,) = same_points_df(runs.reset_index()).to_dict("records")
    assert sorted(merged["run_ids"]) == ["n16", "n5"]
    assert merged["num_draft_tokens"] == 4


def test_forty_eight_running_with_a_queue_against_an_uncapped_baseline_is_unfair(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c", drafters=[{"name": "d"}])
    workload = {"prompt_set": "p", "max_concurrency": 80}
    speed = {"reported.json": {"source": "s", "output_tok_per_s": {"low": 600, "high": 600}}}
    write_run(folder / "spec", log=N4_GRAPH, **{**SPECULATIVE, "workload": workload}, files=speed)
    write_run(folder / "base", workload=workload, files=speed)
    table = fairness_df(load_tables(folder).runs)
    (cap,) = table[table["setting"] == "max_running_requests"].to_dict("records")
    assert (cap["speculative"], cap["baseline"], cap["matters"]) == ("48 (32 queued)", "not stated", True)


def test_reading_a_campaign_twice_gives_the_same_tables() -> None:
    folder = recorded_dir() / "kimi_k25"
    assert read_campaign(folder) == read_campaign(folder)
    pd.testing.assert_frame_equal(load_tables(folder).runs, recorded("kimi_k25").runs)


# --- what says two things, or what cannot be ---------------------------------------------------------------------

ARGS = (
    "[2026-01-05 10:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm={}, speculative_num_steps={}, "
    "speculative_eagle_topk={}, speculative_num_draft_tokens={})\n"
)


@pytest.mark.parametrize(
    ("spec", "args", "what"),
    [
        (SPECULATIVE, ("'EAGLE3'", 3, 1, 4), None),
        (SPECULATIVE, ("'EAGLE'", 3, 1, 4), "algorithm EAGLE3, the log says EAGLE"),
        (SPECULATIVE, ("'EAGLE3'", 2, 1, 3), "steps 3, the log says 2; draft tokens 4, the log says 3"),
        (SPECULATIVE, ("'EAGLE3'", 3, 2, 4), "topk 1, the log says 2"),
        (SPECULATIVE, (None, None, None, None), "algorithm EAGLE3, the log says none"),
        ({}, ("'EAGLE3'", 3, 1, 4), "algorithm none, the log says EAGLE3"),
        ({}, (None, None, None, None), None),
        # The server makes 4 of 16 itself, and EAGLE of NEXTN.
        (asked("NEXTN", 3, 1, 16), ("'EAGLE'", 3, 1, 4), None),
        (asked(None, None, None, None), ("'EAGLE'", 3, 1, 4), None),
    ],
)
def test_a_spec_and_a_log_that_disagree_are_named(
    tmp_path: Path, spec: dict[str, object], args: tuple[object, ...], what: str | None
) -> None:
    folder = write_campaign(tmp_path / "c", drafters=[{"name": "d"}])
    write_run(folder / "r", log=ARGS.format(*args).encode(), **spec)
    expected = [] if what is None else [("r/spec.json", f"spec and server's log disagree: {what}")]
    assert said(load_tables(folder), folder) == expected


def test_a_log_that_states_no_arguments_contradicts_nobody(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c", drafters=[{"name": "d"}])
    write_run(folder / "r", log=N4_GRAPH, **asked("EAGLE3", 5, 1, 6))
    assert load_tables(folder).problems == ()


def test_a_span_beyond_the_end_of_the_log_is_named(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    size = len(N4_GRAPH)
    for name, spans in {"within": [[size - 1, size + 9]], "beyond": [[0, 9], [size, size + 1]]}.items():
        write_run(folder / name, log=N4_GRAPH, status={"log_spans": spans})
    assert said(load_tables(folder), folder) == [
        (
            "beyond/status.json",
            f"log span {size:,} to {size + 1:,} lies beyond the end of the log ({size:,} bytes): no line of it is used",
        )
    ]


def test_an_impossible_accept_length_is_counted_once_a_log_and_makes_no_headline(tmp_path: Path) -> None:
    log = N5_NO_GRAPH.replace(b"accept len: 2.08", b"accept len: 0.08").replace(b"accept len: 1.98", b"accept len: 1e9")
    log = log.replace(b"1e9", b"99999.00")
    folder = write_campaign(tmp_path / "c", drafters=[{"name": "d"}])
    path = write_text(folder / "_servers" / "s" / "server.log", log)
    for name in ("a", "b"):
        write_run(folder / name, status={"log_file": "../_servers/s/server.log"}, **SPECULATIVE)
    tables = load_tables(folder)
    assert tables.runs["accept_length"].tolist() == [1.95, 1.95]
    what = "2 decode lines with an impossible accept length (below 1 or above steps + 1), which is not used"
    assert [(p.where, p.what) for p in tables.problems] == [(str(path), what)]


def test_a_reported_speed_of_zero_is_a_problem_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c", drafters=[{"name": "d"}])
    for name, speed, spec in (("base", 0, {}), ("base2", 20, {}), ("spec", 30, SPECULATIVE)):
        reported = {"source": "notes", "output_tok_per_s": {"low": speed, "high": speed}}
        write_run(folder / name, files={"reported.json": reported}, **spec)
    tables = load_tables(folder)
    ((where, what),) = said(tables, folder)
    assert where == "base/reported.json"
    assert what.endswith("it is not used")
    assert speedup_df(tables.runs, tables.requests)["speedup"].tolist() == [1.5]
    assert drift_df(tables.runs, tables.requests)["relative"].tolist() == [1.0]
    assert cost_df(tables.runs)["gain_needed"].tolist() == [pytest.approx(20 / 30)]
