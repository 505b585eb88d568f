from __future__ import annotations

import pandas as pd
import pytest
from log_samples import N16_GRAPH, PLAIN_PREFILL, VLLM_SPEC, recorded

from workbench.parse.records import StartupFacts
from workbench.table.logs import summarise_log
from workbench.table.windows import dp_rank, log_interval

STAMP = "2026-01-05 10:00:00"
READY = f"[{STAMP}] The server is fired up and ready to roll!\n"
FLUSH = f"[{STAMP}] Cache flushed successfully!\n"
PREFILL = PLAIN_PREFILL.replace("#running-req: 5", "#running-req: 0")


def line(speed: float, *, running: int = 1, accept: float | None = None, tag: str = " TP0") -> str:
    accepted = "" if accept is None else f"accept len: {accept:.2f}, accept rate: 0.25, "
    return (
        f"[{STAMP}{tag}] Decode batch, #running-req: {running}, #token: 100, token usage: 0.01, {accepted}"
        f"cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: 0\n"
    )


def windows(*lines: str | bytes) -> pd.DataFrame:
    data = b"".join(part if isinstance(part, bytes) else part.encode() for part in lines)
    return summarise_log([data], name="a.log").windows


def flags(name: str, *lines: str | bytes) -> list[bool]:
    return windows(*lines)[name].astype(bool).tolist()


# --- what a line stands for --------------------------------------------------------------------------------------


def test_a_plain_line_stands_for_one_token_a_step_and_request() -> None:
    # 40 steps by default, 8 running: 320 tokens, at 160 tok/s two seconds
    row = windows(line(160.0, running=8)).iloc[0]
    assert (row["window_tokens"], row["window_s"]) == (320.0, 2.0)


def test_a_speculative_line_for_accept_length_tokens() -> None:
    args = f"[{STAMP}] server_args=ServerArgs(model_path='m', decode_log_interval=10)\n"
    row = windows(args, line(50.0, running=2, accept=2.5)).iloc[0]
    assert (row["window_tokens"], row["window_s"]) == (50.0, 1.0)


def test_a_cut_line_is_not_taken_for_a_plain_one() -> None:
    table = windows(N16_GRAPH.replace(b"accept len: 2.05, accept rate...", b"accept l..."))
    assert table["truncated"].tolist() == [False, False, True]
    assert table["window_tokens"].tolist()[:2] == [pytest.approx(40 * 2.15), pytest.approx(40 * 2.12)]
    assert pd.isna(table["window_tokens"].iloc[2])


def test_a_vllm_line_does_not_tell_its_tokens() -> None:
    later = VLLM_SPEC.splitlines(keepends=True)[1].replace(b"2.25", b"2.50")
    table = windows(VLLM_SPEC, later)
    first, second = table.to_dict("records")
    assert (first["accept_len"], first["gen_tok_per_s"], first["running_req"], first["queue_req"]) == (2.25, 55.5, 2, 1)
    assert first["accept_rate_printed"] == pytest.approx(0.417)
    assert first["token_usage"] == pytest.approx(0.03)
    assert table[["window_tokens", "window_s"]].isna().all(axis=None)
    # An engine line speaks for the interval before it, not for a later one.
    assert second["accept_len"] == 2.5
    assert pd.isna(second["gen_tok_per_s"])
    assert not table["idle"].any()


@pytest.mark.parametrize(
    ("stated", "interval"), [(10, 10), (None, 40), (True, 40), ("10", 40), (0, 40), (-5, 40), (10**400, 40), (2.5, 40)]
)
def test_the_interval_is_the_stated_one_or_the_default(stated: object, interval: int) -> None:
    assert log_interval(StartupFacts(server_args={"decode_log_interval": stated})) == interval
    assert log_interval(StartupFacts()) == 40


# --- first lines and waiting -------------------------------------------------------------------------------------


def test_a_phase_opens_when_nothing_runs_before_its_prefill() -> None:
    assert flags("opening", PREFILL, line(50), line(50), PLAIN_PREFILL, line(50)) == [True, False, False]


@pytest.mark.parametrize("event", [READY, FLUSH])
def test_a_phase_opens_after_the_start_and_after_a_flush_on_every_rank(event: str) -> None:
    lines = [line(50, tag=tag) for tag in (" DP0 TP0", " DP1 TP0")]
    assert flags("opening", *lines, event, *lines, *lines) == [False, False, True, True, False, False]


def test_a_data_parallel_rank_opens_by_itself() -> None:
    lines = [line(50, tag=" DP0 TP0"), line(50, tag=" DP1 TP0")]
    prefill = PREFILL.replace(" TP0]", " DP1 TP0]")
    assert flags("opening", *lines, prefill, *lines) == [False, False, False, True]


def test_each_line_knows_the_load_before_it_on_its_rank() -> None:
    tags = (" DP0 TP0", " DP1 TP0")
    loads = [(1, 0), (7, 1), (2, 0), (8, 1)]
    table = windows(*[line(50, running=running, tag=tags[rank]) for running, rank in loads])
    assert table["before_req"].tolist() == [0, 0, 1, 7]


def test_the_first_line_after_idle_time_is_idle() -> None:
    # 40 tokens at 0.77 tok/s are 52 s; the others take 0.8 s.
    lines = [READY, PREFILL, line(0.77), line(50), line(51), line(52)]
    assert flags("idle", *lines) == [True, False, False, False]


def test_so_it_is_where_a_copied_piece_holds_no_prefill_lines() -> None:
    assert flags("idle", line(0.77), line(50)) == [True, False]
    assert flags("idle", line(50), line(0.77), line(51), line(50)) == [False, True, False, False]


def test_of_a_single_line_nothing_can_be_told() -> None:
    assert flags("idle", line(0.77)) == [False]
    # After the start it can: it took 52 s, and no other line says that this is what lines take.
    assert flags("idle", READY, line(0.77)) == [True]


def test_a_quick_first_line_counts() -> None:
    # 40 tokens at 60 tok/s take 0.7 s: a cold start, but nobody waited.
    assert flags("idle", PREFILL, line(60), *[line(900)] * 4) == [False] * 5


def test_a_slow_server_is_not_taken_for_a_waiting_one() -> None:
    # Every line takes 20 s; first lines take 50 s.
    assert flags("idle", PREFILL, line(0.8), line(2.0), line(2.0)) == [False] * 3
    # Answers so short that every line is a first one.
    assert flags("idle", *[PREFILL, line(2.0)] * 4) == [False] * 4


def test_what_takes_long_in_the_middle_of_a_phase_counts() -> None:
    assert flags("idle", PREFILL, line(50), line(50), line(0.77), line(50)) == [False] * 4


def test_a_line_without_speed_is_idle() -> None:
    assert flags("idle", PREFILL, line(50), line(0), line(50)) == [False, True, False]


def test_lines_are_judged_by_others_at_their_load() -> None:
    # One request at 30 tok/s is not slow because eight reach 400.
    assert flags("idle", *[line(400, running=8)] * 5, line(30), line(31)) == [False] * 7


def test_the_start_of_a_recorded_log_is_idle_and_nothing_else() -> None:
    # Its first decode line reads 0.88 tok/s for 10 steps: 11 s, of which most came before the first request.
    table = windows(recorded("base"))
    assert table.loc[table["idle"], "gen_tok_per_s"].tolist() == [0.88]


# --- one voice a rank --------------------------------------------------------------------------------------------


def test_tensor_parallel_ranks_say_the_same_and_are_heard_once() -> None:
    lines = [line(50 + k, tag=f" TP{rank}") for k in range(3) for rank in range(4)]
    table = windows(*lines)
    assert table["gen_tok_per_s"].tolist() == [50.0, 51.0, 52.0]


def test_pipeline_ranks_likewise() -> None:
    table = windows(*[line(50, tag=f" PP{rank} TP0") for rank in (0, 1)] * 3)
    assert len(table) == 3


def test_data_parallel_ranks_are_all_heard() -> None:
    table = windows(*[line(50 + rank, tag=f" DP{rank} TP{rank}") for rank in range(3)] * 2)
    assert table["dp_rank"].tolist() == [0, 1, 2] * 2


def test_a_first_line_without_its_tag_does_not_silence_the_others() -> None:
    torn = line(49).partition("]")[2]
    assert windows(torn, *[line(50)] * 3)["gen_tok_per_s"].tolist() == [49.0, 50.0, 50.0, 50.0]


def test_where_several_ranks_print_a_line_without_tag_is_a_repetition() -> None:
    torn = line(50).partition("]")[2]
    lines = [line(50, tag=f" TP{rank}") for rank in (0, 1)] * 3
    assert len(windows(torn, *lines)) == 3


def test_a_second_server_in_the_same_file_may_tag_otherwise() -> None:
    args = f"[{STAMP}] server_args=ServerArgs(model_path='m')\n"
    table = windows(args, *[line(50, tag=" TP0")] * 3, args, *[line(60, tag="")] * 2)
    assert table["gen_tok_per_s"].tolist() == [50.0] * 3 + [60.0] * 2


@pytest.mark.parametrize(
    ("tags", "rank"), [("TP0", 0), ("DP1 TP5", 1), ("", 0), ("DP12", 12), ("DP", 0), ("DP" + "9" * 5000, 0)]
)
def test_rank_tags(tags: str, rank: int) -> None:
    assert dp_rank(frozenset(tags.split())) == rank


# --- what cannot be ----------------------------------------------------------------------------------------------


def speculating(steps: int, algorithm: str = "EAGLE3", more: str = "") -> str:
    return (
        f"[{STAMP}] server_args=ServerArgs(model_path='m', speculative_algorithm='{algorithm}', "
        f"speculative_num_steps={steps}{more})\n"
    )


@pytest.mark.parametrize(
    ("args", "possible"),
    [
        (speculating(3), [False, True, True, True, False, False]),
        (speculating(3, "nextn"), [False, True, True, True, False, False]),
        (speculating(5), [False, True, True, True, True, False]),
        # Without a fixed number of tokens a step only what is absurd is refused.
        (speculating(3, more=", speculative_adaptive=True"), [False, True, True, True, True, False]),
        (speculating(3, "UNO"), [False, True, True, True, True, False]),
        ("", [False, True, True, True, True, False]),
    ],
)
def test_an_accept_length_that_cannot_be_is_missing_and_counted(args: str, possible: list[bool]) -> None:
    lengths = [0.5, 1.0, 2.5, 4.0, 5.0, 5000.0]
    log = summarise_log([(args + "".join(line(50.0, accept=length) for length in lengths)).encode()], name="a.log")
    assert log.windows["accept_len"].notna().tolist() == possible
    assert log.windows["window_tokens"].notna().tolist() == possible
    assert log.num_impossible == possible.count(False)


def test_the_limit_is_that_of_the_server_which_printed_the_line() -> None:
    table = windows(speculating(3), line(50.0, accept=5.0), speculating(5), line(50.0, accept=5.0))
    assert table["accept_len"].isna().tolist() == [True, False]


@pytest.mark.parametrize(("year", "known"), [("0001", False), ("1990", True), ("2100", True), ("9999", False)])
def test_a_year_that_cannot_be_is_no_time(year: str, known: bool) -> None:
    flushed = FLUSH.replace("2026", year)
    log = summarise_log([(line(50.0).replace("2026", year) + flushed).encode()], name="a.log")
    assert log.counts.decode == 1
    assert log.windows["time"].notna().tolist() == [known]
    assert [event.time is not None for event in log.events] == [known]
