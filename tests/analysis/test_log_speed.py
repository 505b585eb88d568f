import math

import pandas as pd
import pytest
from analysis_tables import recorded, windows

from workbench.analysis.log_speed import agreed_verdict, client_like_df, log_speed_df


def _line(
    speed: float, *, running: int = 8, tokens: float = 80.0, idle: bool = False, **more: object
) -> dict[str, object]:
    return {"running_req": running, "gen_tok_per_s": speed, "window_tokens": tokens, "idle": idle, **more}


def _at(table: pd.DataFrame, running: int) -> pd.Series:
    return table.set_index("running_req").loc[running]


def test_client_like_speed_is_all_tokens_over_all_time() -> None:
    # 80 tokens in 1 s and 80 in 3 s
    row = _at(client_like_df(windows(_line(80.0), _line(80.0 / 3))), 8)
    assert row["client"] == pytest.approx(40.0)
    assert row["median"] == pytest.approx((80 + 80 / 3) / 2)


def test_the_first_line_of_a_phase_is_counted_at_the_mean_of_both_loads() -> None:
    # One running before, 8 now: (1 + 8) / 2 / 8 of 80 tokens are 45, at 90 tok/s half a second; then 1 s.
    table = client_like_df(windows(_line(10.0, running=1, tokens=10.0), _line(90.0, idle=True), _line(80.0)))
    row = _at(table, 8)
    assert (row["tokens"], row["seconds"], row["opening_s"]) == (125.0, 1.5, 0.5)
    assert row["opening_share"] == pytest.approx(1 / 3)


def test_a_line_that_waited_is_left_out_and_its_time_is_kept() -> None:
    # 10 tokens at 0.77 tok/s: 13 s, and other lines take 0.1 s
    lines = [_line(0.77, running=1, tokens=10.0, idle=True), *(_line(100.0, running=1, tokens=10.0) for _ in range(3))]
    row = _at(client_like_df(windows(*lines)), 1)
    assert row["client"] == pytest.approx(100.0)
    assert row["num_windows"] == 3
    assert row["left_out_s"] == pytest.approx(10 / 0.77)


def test_a_wait_is_told_by_the_whole_line_whatever_part_of_it_would_count() -> None:
    # The first line of a log took 3 s, of which half would count.
    lines = [_line(80.0 / 3, idle=True), *(_line(800.0) for _ in range(3))]
    assert _at(client_like_df(windows(*lines)), 8)["num_windows"] == 3


def test_a_slow_engine_is_not_taken_for_a_waiting_one() -> None:
    # Every line takes 8 s; first lines take 10 s.
    lines = [_line(1.0, running=1, tokens=8.0), *(_line(0.8, running=1, tokens=8.0, idle=True) for _ in range(3))]
    assert _at(client_like_df(windows(*lines)), 1)["num_windows"] == 4


def test_data_parallel_ranks_are_read_apart() -> None:
    # Rank 1 goes on with 8 running; the line before it in the log is rank 0's.
    lines = [_line(80.0, dp_rank=1), _line(10.0, running=1, tokens=10.0), _line(80.0, dp_rank=1, idle=True)]
    assert _at(client_like_df(windows(*lines)), 8)["tokens"] == 160.0


def test_lines_without_speed_or_load_are_left_out() -> None:
    lines = [_line(80.0), _line(float("nan")), _line(0.0), _line(80.0, running=0)]
    assert list(client_like_df(windows(*lines))["num_windows"]) == [1]


@pytest.mark.parametrize(
    ("client", "median", "verdict", "words"),
    [
        (0.55, 0.97, "not decidable", "they disagree, as cold starts and short phases"),
        (1.20, 0.85, "not decidable", "they disagree"),
        (0.63, 0.86, "not decidable", "they disagree"),
        (0.28, 0.43, "loss", "both tell the same"),
        (2.0, 3.0, "win", "both tell the same"),
        (1.06, 1.04, "not decidable", "too near to 1"),
        (1.01, 0.99, "not decidable", "too near to 1"),
        (float("nan"), 2.0, "not decidable", "not known"),
        (0.0, 2.0, "not decidable", "not known"),
    ],
)
def test_two_readings_make_a_verdict_only_where_they_agree(client, median, verdict, words) -> None:
    found, reason = agreed_verdict(client, median)
    assert found == verdict
    assert words in reason


def test_few_lines_decide_nothing() -> None:
    row = log_speed_df(windows(*[_line(240.0)] * 4), windows(*[_line(80.0)] * 9)).iloc[0]
    assert (row["client_speedup"], row["median_speedup"]) == pytest.approx((3.0, 3.0))
    assert (row["num_windows_spec"], row["num_windows_base"]) == (4, 9)
    assert row["verdict"] == "not decidable"
    assert row["reason"].startswith("only 4 decode lines in one arm")
    assert not row["decidable"]


def test_only_loads_of_both_logs_are_compared() -> None:
    table = log_speed_df(windows(*[_line(240.0)] * 5), windows(*[_line(80.0)] * 5, _line(9.0, running=3)))
    assert list(table["running_req"]) == [8]
    assert table["verdict"].item() == "win"


def test_empty_logs_give_an_empty_table_with_its_columns() -> None:
    full = log_speed_df(windows(_line(1.0)), windows(_line(1.0)))
    for empty in (log_speed_df(windows(), windows(_line(1.0))), log_speed_df(windows(), windows())):
        assert empty.empty
        assert list(empty.columns) == list(full.columns)


def _recorded(server: str) -> pd.DataFrame:
    return recorded("h200_smollm2").logs["h200_smollm2", server].windows


# Output tok/s that the clients of the recorded logs measured, and how far the log's client-like speed may lie from it.
CLIENTS = {
    ("base", 1): (767.6, 0.01),
    ("base", 8): (6046.5, 0.04),
    ("base", 32): (21046.9, 0.04),
    ("eagle-flag", 1): (342.0, 0.02),
    ("eagle-flag", 8): (1713.7, 0.21),
    ("eagle-flag", 32): (7199.9, 0.15),
    ("sim25-s3", 1): (811.5, 0.02),
    ("sim25-s3", 8): (3325.7, 0.10),
    ("sim25-s3", 32): (13218.7, 0.10),
}


@pytest.mark.parametrize(("server", "load"), CLIENTS)
def test_client_like_speed_is_near_what_clients_measured(server: str, load: int) -> None:
    measured, tolerance = CLIENTS[server, load]
    assert _at(client_like_df(_recorded(server)), load)["client"] == pytest.approx(measured, rel=tolerance)


def test_the_simulated_log_at_concurrency_8_is_not_decidable_from_logs() -> None:
    # By the client 3325.7 / 6046.5 = 0.55; the median lines are 6863.71 and 7072.11.
    row = _at(log_speed_df(_recorded("sim25-s3"), _recorded("base")), 8)
    assert row["median_speedup"] == pytest.approx(6863.71 / 7072.11)
    assert 0.45 < row["client_speedup"] < 0.6
    assert row["verdict"] == "not decidable"
    assert "cold starts and short phases" in row["reason"]
    assert "61% of the speculative arm's time" in row["reason"]


def test_the_log_with_the_wrong_flag_is_a_loss_at_every_load() -> None:
    table = log_speed_df(_recorded("eagle-flag"), _recorded("base"))
    assert dict(zip(table["running_req"], table["verdict"], strict=True)) == {1: "loss", 8: "loss", 32: "loss"}
    assert not math.isnan(table["client_speedup"].sum())
