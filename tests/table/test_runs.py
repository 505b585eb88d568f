from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from log_samples import N16_GRAPH
from run_folders import SPECULATIVE, write_campaign, write_run

from workbench.table import load_tables

ARGS = (
    "[2026-01-05 10:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE3', "
    "speculative_num_steps={steps}, speculative_eagle_topk=1, speculative_num_draft_tokens={tokens}, "
    "decode_log_interval=10, max_running_requests=64)\n"
)
DECODE = (
    "[2026-01-05 10:00:01] Decode batch, #running-req: 1, #token: 56, token usage: 0.00, accept len: {accept}, "
    "accept rate: {rate}, cuda graph: {graph}, gen throughput (token/s): 101.50, #queue-req: 0\n"
)
DRAFTERS = [{"name": "d", "target": "T", "training_samples": 500, "epochs": 3, "seed": 7, "recipe": "r"}]


def decode_spec(steps: int | None, topk: int | None, tokens: int | None, **more: object) -> dict[str, object]:
    given = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
        **more,
    }
    return {"drafter": "d", "spec_decode": {name: value for name, value in given.items() if value is not None}}


def row_of(folder: Path, problems: int = 0, **run: Any) -> dict[str, Any]:
    campaign = folder / "c"
    if not campaign.exists():
        write_campaign(campaign, drafters=DRAFTERS)
    write_run(campaign / "r", **run)
    tables = load_tables(campaign)
    assert len(tables.problems) == problems, tables.problems
    return {str(name): value for name, value in tables.runs.iloc[0].items()}


def missing(value: object) -> bool:
    return not isinstance(value, list) and bool(pd.isna(value))


@pytest.mark.parametrize(
    ("listed", "count"),
    [
        *(("0-3,8", 5), ("7", 1), ("0,2,4-5", 4), (None, None), ("", None), ("0-x", None), ("-1", None)),
        *((text, None) for text in ("9" * 5000, f"0-{'9' * 30}", "9-2", "0-3,9-2")),
    ],
)
def test_company_and_cpus_of_a_run(tmp_path: Path, listed: str | None, count: int | None) -> None:
    known = {"origin": "measured", "source": "a test", "places": 3, "cpus": listed}
    row = row_of(tmp_path, files={"provenance.json": known})
    assert row["places"] == 3
    assert missing(row["cpus"]) if count is None else row["cpus"] == count


# --- what was asked, and what the server used --------------------------------------------------------------------


def test_what_was_asked_and_known_of_the_drafter(tmp_path: Path) -> None:
    row = row_of(
        tmp_path,
        **SPECULATIVE,
        label="three steps",
        baseline_group="A",
        sglang_version="0.5.14",
        server={"tp_size": 8, "cuda_graph": True, "max_running_requests": 48},
        workload={"prompt_set": "p", "max_concurrency": 8, "temperature": 0, "max_new_tokens": 256, "ignore_eos": True},
    )
    asked = {
        "campaign": "c",
        "run_id": "r",
        "server_id": "server",
        "label": "three steps",
        "role": "speculative",
        "baseline_group": "A",
        "origin": "measured",
        "source": "a test",
        "status": "ok",
        "engine": "sglang",
        "sglang_version": "0.5.14",
        "target": "T",
        "tp_size": 8,
        "dp_size": 1,
        "drafter": "d",
        "drafter_target": "T",
        "training_samples": 500,
        "epochs": 3.0,
        "seed": 7,
        "recipe": "r",
        "speculative_algorithm": "EAGLE3",
        "asked_num_steps": 3,
        "asked_eagle_topk": 1,
        "asked_num_draft_tokens": 4,
        "num_steps": 3,
        "eagle_topk": 1,
        "num_draft_tokens": 4,
        "cuda_graph": True,
        "max_running_requests": 48,
        "prompt_set": "p",
        "temperature": 0.0,
        "max_new_tokens": 256,
        "ignore_eos": True,
        "max_concurrency": 8,
    }
    assert {name: row[name] for name in asked} == asked
    assert {name for name, value in row.items() if not missing(value)} == set(asked)


def test_a_baseline_has_no_speculative_numbers(tmp_path: Path) -> None:
    row = row_of(tmp_path, log=DECODE.format(accept="2.40", rate="0.47", graph=True).encode())
    assert row["role"] == "baseline"
    assert all(missing(row[name]) for name in ("num_steps", "eagle_topk", "num_draft_tokens", "drafter"))


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ((3, 1, 16), (3, 1, 4)),  # topk 1 is a chain: steps + 1 draft tokens, whatever was asked
        ((3, 1, 5), (3, 1, 4)),
        ((5, 4, 8), (5, 4, 8)),
        ((None, None, 16), (None, None, 16)),
        ((None, None, None), (None, None, None)),
    ],
)
def test_the_server_rewrites_what_was_asked(
    tmp_path: Path, asked: tuple[int | None, ...], used: tuple[int | None, ...]
) -> None:
    row = row_of(tmp_path, **decode_spec(*asked))
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    for prefix, values in (("asked_", asked), ("", used)):
        found = [row[f"{prefix}{name}"] for name in names]
        assert [None if missing(value) else value for value in found] == list(values)


def test_the_log_knows_better_than_the_spec(tmp_path: Path) -> None:
    log = ARGS.format(steps=2, tokens=3) + DECODE.format(accept="1.50", rate="0.25", graph=False)
    server = {"cuda_graph": True, "max_running_requests": 48}
    row = row_of(tmp_path, problems=1, **SPECULATIVE, server=server, log=log.encode())
    assert (row["asked_num_steps"], row["num_steps"], row["num_draft_tokens"]) == (3, 2, 3)
    assert (row["cuda_graph"], row["cuda_graph_share"]) == (False, 0.0)
    assert row["accept_length_log"] == 1.5
    assert row["accept_rate"] == 0.25


def test_numbers_that_no_table_can_hold_are_not_taken_from_a_log(tmp_path: Path) -> None:
    log = ARGS.format(steps=10**30, tokens=10**30) + DECODE.format(accept="1.50", rate="0.25", graph=True)
    row = row_of(tmp_path, **SPECULATIVE, log=log.encode())
    assert (row["num_steps"], row["num_draft_tokens"]) == (3, 4)


@pytest.mark.parametrize(
    ("accept", "rate", "steps", "definition", "own_rate"),
    [("1.00", "0.25", 3, "L/N", 0.0), ("2.40", "0.47", 3, "(L-1)/(N-1)", 1.4 / 3)],
)
def test_our_accept_rate_beside_the_printed_one(
    tmp_path: Path, accept: str, rate: str, steps: int, definition: str, own_rate: float
) -> None:
    log = ARGS.format(steps=steps, tokens=steps + 1) + DECODE.format(accept=accept, rate=rate, graph=True)
    row = row_of(tmp_path, **decode_spec(steps, 1, steps + 1), log=log.encode())
    assert row["accept_rate"] == pytest.approx(own_rate)
    assert row["accept_rate_printed"] == float(rate)
    assert row["accept_rate_definition"] == definition


def test_with_16_draft_tokens_and_unknown_steps_the_printed_rate_is_accept_length_over_draft_tokens(
    tmp_path: Path,
) -> None:
    # 2.15 / 16 = 0.134; (2.15 - 1) / 15 would be 0.077.
    row = row_of(tmp_path, **decode_spec(None, None, 16), log=N16_GRAPH)
    assert row["accept_rate_definition"] == "L/N"
    assert missing(row["accept_rate"])
    assert row["num_draft_tokens"] == 16


# --- what came out -----------------------------------------------------------------------------------------------

REQUESTS: list[object] = [
    {"repeat": 0, "completion_tokens": 11, "spec_verify_ct": 5, "latency_s": 0.5, "steps_histogram": [2, 1, 2]},
    {"repeat": 1, "completion_tokens": 21, "spec_verify_ct": 8, "latency_s": 1.5, "steps_histogram": [3, 2, 1, 2]},
    {"repeat": 1, "completion_tokens": 500, "spec_verify_ct": 1, "latency_s": 9, "error": "died"},
]


def test_figures_from_requests_leave_failed_ones_out_and_count_them(tmp_path: Path) -> None:
    row = row_of(tmp_path, **SPECULATIVE, requests=REQUESTS)
    assert (row["num_requests"], row["num_failed"], row["repeats"]) == (2, 1, 2)
    assert (row["completion_tokens"], row["spec_verify_ct"]) == (32, 13)
    # [5, 3, 3, 2]: (5 + 6 + 9 + 8) / 13
    assert row["steps_histogram"] == [5, 3, 3, 2]
    assert row["accept_length"] == row["accept_length_requests"] == pytest.approx(28 / 13)
    assert row["accept_length_source"] == "requests"
    assert row["accept_rate"] == pytest.approx((28 / 13 - 1) / 3)
    assert row["output_tok_per_s"] == row["output_tok_per_s_low"] == row["output_tok_per_s_high"] == 16.0
    assert missing(row["decode_tok_per_s"])


def test_a_run_of_failures_has_no_figures(tmp_path: Path) -> None:
    row = row_of(tmp_path, **SPECULATIVE, requests=[{"error": "died"}, {"ok": False, "completion_tokens": 3}])
    assert (row["num_requests"], row["num_failed"]) == (0, 2)
    for name in ("completion_tokens", "spec_verify_ct", "accept_length", "output_tok_per_s", "steps_histogram"):
        assert missing(row[name]), name


def test_requests_without_tokens_make_no_total_of_zero(tmp_path: Path) -> None:
    row = row_of(tmp_path, requests=[{"latency_s": 1.0}])
    assert row["num_requests"] == 1
    assert missing(row["completion_tokens"])
    assert missing(row["output_tok_per_s"])


PROM = """\
sglang:generation_tokens_total {tokens}
sglang:num_requests_total {requests}
sglang:spec_verify_calls_total {calls}
"""


def test_sources_of_the_accept_length_stand_side_by_side_and_the_best_is_used(tmp_path: Path) -> None:
    files = {
        "metrics.before.prom": PROM.format(tokens=100, requests=10, calls=50),
        "metrics.after.prom": PROM.format(tokens=320, requests=20, calls=150),
        "reported.json": {"source": "notes", "accept_length": {"low": 3.0, "high": 3.5}},
    }
    log = DECODE.format(accept="2.40", rate="0.47", graph=True).encode()
    all_four = row_of(tmp_path / "a", **SPECULATIVE, requests=REQUESTS, log=log, files=files)
    lengths = [all_four[f"accept_length_{source}"] for source in ("requests", "counters", "log")]
    # By the counters (220 - 10) / 100.
    assert lengths == [pytest.approx(28 / 13), pytest.approx(2.1), pytest.approx(2.4)]
    assert (all_four["accept_length"], all_four["accept_length_source"]) == (pytest.approx(28 / 13), "requests")
    without_requests = row_of(tmp_path / "b", **SPECULATIVE, log=log, files=files)
    assert (without_requests["accept_length"], without_requests["accept_length_source"]) == (2.1, "counters")
    reported = row_of(tmp_path / "c", **SPECULATIVE, log=log, files={"reported.json": files["reported.json"]})
    assert [reported[f"accept_length{end}"] for end in ("", "_low", "_high", "_source")] == [3.25, 3.0, 3.5, "reported"]
    log_only = row_of(tmp_path / "d", **SPECULATIVE, log=log)
    assert [log_only[f"accept_length{end}"] for end in ("", "_low", "_high", "_source")] == [2.4, 2.4, 2.4, "log"]


def test_counters_that_say_nothing_finite_say_nothing(tmp_path: Path) -> None:
    files = {
        "metrics.before.prom": PROM.format(tokens=0, requests=0, calls=0),
        "metrics.after.prom": PROM.format(tokens="1e308", requests=0, calls="1e-308"),
    }
    assert missing(row_of(tmp_path, **SPECULATIVE, files=files)["accept_length"])


def test_reported_figures_fill_gaps_and_never_replace_what_was_measured(tmp_path: Path) -> None:
    reported = {
        "source": "notes",
        "output_tok_per_s": {"low": 50, "high": 60},
        "decode_tok_per_s": {"low": 70, "high": 70},
        "accept_rate_printed": {"low": 0.4, "high": 0.45},
        "completion_tokens": 999,
        "queue_req": 32,
    }
    files = {"reported.json": reported}
    filled = row_of(tmp_path / "a", **SPECULATIVE, files=files)
    assert [filled[f"output_tok_per_s{end}"] for end in ("", "_low", "_high")] == [55.0, 50.0, 60.0]
    assert (filled["decode_tok_per_s"], filled["completion_tokens"], filled["peak_queue_req"]) == (70.0, 999, 32)
    assert filled["accept_rate_printed"] == pytest.approx(0.425)
    log = DECODE.format(accept="2.40", rate="0.47", graph=True).encode()
    measured = row_of(tmp_path / "b", **SPECULATIVE, requests=REQUESTS, log=log, files=files)
    assert [measured[f"output_tok_per_s{end}"] for end in ("", "_low", "_high")] == [16.0, 16.0, 16.0]
    assert (measured["completion_tokens"], measured["peak_queue_req"]) == (32, 0)
    assert measured["accept_rate_printed"] == 0.47


def test_the_status_and_its_reason_are_kept(tmp_path: Path) -> None:
    row = row_of(tmp_path, status={"status": "failed", "reason": "exit code 1"}, requests=REQUESTS)
    assert (row["status"], row["status_reason"], row["num_requests"]) == ("failed", "exit code 1", 2)


@pytest.mark.parametrize(
    ("request_record", "possible"),
    [
        ({"completion_tokens": 10, "spec_verify_ct": 10}, True),  # (10 - 1) / 10, one step more than needed
        ({"completion_tokens": 10, "spec_verify_ct": 100}, False),  # 0.09
        ({"completion_tokens": 41, "spec_verify_ct": 10}, True),  # 4 = 3 steps + 1
        ({"completion_tokens": 61, "spec_verify_ct": 10}, False),  # 6
        ({"completion_tokens": 61, "spec_verify_ct": 10, "steps_histogram": [0, 0, 0, 0, 0, 10]}, False),
    ],
)
def test_an_accept_length_of_requests_that_cannot_be_is_no_headline(
    tmp_path: Path, request_record: dict[str, object], possible: bool
) -> None:
    log = DECODE.format(accept="2.40", rate="0.47", graph=True).encode()
    row = row_of(tmp_path, problems=0 if possible else 1, **SPECULATIVE, requests=[request_record], log=log)
    assert row["accept_length_source"] == ("requests" if possible else "log")
    assert missing(row["accept_length_requests"]) is not possible


def test_a_speed_of_nothing_is_not_measured(tmp_path: Path) -> None:
    windows = [{"repeat": 0, "wall_s": 2.0, "busy_window_s": 1.0, "decode_tok_per_s": 0.0, "completion_tokens": 0}]
    row = row_of(tmp_path, requests=[{"completion_tokens": 0, "latency_s": 1.0}], files={"windows.json": windows})
    assert missing(row["output_tok_per_s"])
    assert missing(row["output_tok_per_s_low"])
    assert missing(row["decode_tok_per_s"])


def test_the_passes_of_the_client_are_kept(tmp_path: Path) -> None:
    timed = {"wall_s": 3.0, "completion_tokens": 300}
    windows = [
        {"repeat": 0, "busy_window_s": 1.0, "decode_tok_per_s": 100.0, **timed},
        {"repeat": 1, "busy_window_s": 2.0, "decode_tok_per_s": 130.0, **timed},
    ]
    at_eight = {"requests": [{"completion_tokens": 9, "latency_s": 1.0}]}
    row = row_of(tmp_path, files={"windows.json": windows}, **at_eight)
    assert (row["pass_decode_tok_per_s"], row["pass_busy_s"]) == ([100.0, 130.0], [1.0, 2.0])
    assert row["decode_tok_per_s"] == pytest.approx(120.0)  # (100 + 260) / 3


# --- simulated acceptance ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        decode_spec(3, 1, 4, simulated_accept_length=2.5),
        {**decode_spec(3, 1, 4), "server": {"env": {"SGLANG_SIMULATE_ACC_LEN": "2.5"}}},
        {**decode_spec(3, 1, 4), "server": {"env": {"SIMULATE_ACC_LEN": "2.5"}}},
    ],
)
def test_simulated_acceptance_is_never_called_measured(tmp_path: Path, run: dict[str, object]) -> None:
    row = row_of(tmp_path, **run, label="three steps")
    assert (row["origin"], row["label"]) == ("simulated", "three steps (simulated)")
    assert row["simulated_accept_length"] == 2.5


@pytest.mark.parametrize("text", ["", "0", "-1", "off", "nan"])
def test_a_variable_that_forces_nothing_simulates_nothing(tmp_path: Path, text: str) -> None:
    row = row_of(tmp_path, **decode_spec(3, 1, 4), server={"env": {"SGLANG_SIMULATE_ACC_LEN": text}})
    assert (row["origin"], row["label"]) == ("measured", "r")
    assert missing(row["simulated_accept_length"])


def test_a_baseline_has_no_acceptance_to_simulate(tmp_path: Path) -> None:
    assert row_of(tmp_path, server={"env": {"SGLANG_SIMULATE_ACC_LEN": "2.5"}})["origin"] == "measured"


# --- energy ------------------------------------------------------------------------------------------------------


def test_energy_from_the_samples_of_a_run(tmp_path: Path) -> None:
    # 200 W over the two seconds of the window: 400 J for 50 tokens. The 900 W lie outside.
    samples = [(0.0, 900.0), (1.0, 200.0), (2.0, 200.0), (3.0, 200.0), (3.5, 900.0)]
    lines = "".join(f'{{"t_s": {t}, "gpu": 0, "power_w": {w}, "memory_used_bytes": 7e9}}\n' for t, w in samples)
    windows = [{"repeat": 0, "wall_s": 2.0, "completion_tokens": 50, "started_s": 1.0}]
    row = row_of(tmp_path, files={"gpu.jsonl": lines, "windows.json": windows})
    assert row["energy_j_per_tok"] == pytest.approx(8.0)
    assert row["gpu_power_w"] == pytest.approx(200.0)
    assert row["gpu_peak_memory_bytes"] == 7e9


def test_without_samples_there_is_no_energy(tmp_path: Path) -> None:
    row = row_of(tmp_path, files={"windows.json": [{"repeat": 0, "wall_s": 2.0, "started_s": 1.0}]})
    assert all(missing(row[name]) for name in ("energy_j_per_tok", "gpu_power_w", "gpu_peak_memory_bytes"))


def test_samples_of_the_whole_node_are_not_those_of_one_server(tmp_path: Path) -> None:
    lines = "".join(f'{{"t_s": {t}, "gpu": {gpu}, "power_w": 100}}\n' for t in (0, 1, 2) for gpu in (0, 1))
    windows = [{"repeat": 0, "wall_s": 1.0, "completion_tokens": 50, "started_s": 0.5}]
    row = row_of(tmp_path, problems=1, files={"gpu.jsonl": lines, "windows.json": windows})
    assert missing(row["energy_j_per_tok"])
