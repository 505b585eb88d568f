import math

import pandas as pd
import pytest
from analysis_tables import recorded, windows

from workbench.analysis.log_speed import agreed_verdict, log_speed_df
from workbench.table.lines import lines_of
from workbench.table.speeds import client_like


def _line(speed: float, *, running: int = 8, tokens: float = 80.0) -> dict[str, object]:
    return {"running_req": running, "gen_tok_per_s": speed, "window_tokens": tokens}


def _at(table: pd.DataFrame, running: int) -> pd.Series:
    return table.set_index("running_req").loc[running]


@pytest.mark.parametrize(
    ("client", "median", "verdict", "words"),
    [
        (
            0.55,
            0.97,
            "not decidable",
            "they disagree and the median line alone is near even, as it does not see cold starts",
        ),
        (1.20, 0.85, "not decidable", "they disagree"),
        (0.63, 0.86, "loss", "both on one side, though not how much"),
        (0.89, 0.89, "loss", "both on one side"),
        (0.91, 0.70, "not decidable", "they disagree"),
        (0.28, 0.43, "loss", "both on one side"),
        (2.0, 3.0, "win", "both on one side"),
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


def test_from_logs_alone_the_reason_names_both_estimates() -> None:
    row = _at(log_speed_df(_recorded("sim25-s3"), _recorded("base")), 32)
    # The median lines are 22,155 and 25,731; the clients saw 13218.7 / 21046.9 = 0.63, which the whole log misses.
    assert row["verdict"] == "loss"
    assert row["reason"].startswith("0.55x over the whole log, 0.86x by the median line: one pass, both on one side")


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
    assert client_like(lines_of(_recorded(server)))[load].client == pytest.approx(measured, rel=tolerance)


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


def test_a_log_whose_lines_do_not_tell_their_time_decides_nothing() -> None:
    timeless = windows(*[{"running_req": 8, "gen_tok_per_s": 240.0}] * 5)
    row = log_speed_df(timeless, windows(*[_line(80.0)] * 5)).iloc[0]
    assert math.isnan(row["client_speedup"])
    assert row["verdict"] == "not decidable"
    assert row["reason"].startswith("the lines of one log do not tell their time")


def test_lines_by_the_clock_count_alike() -> None:
    def lines(*speeds: float) -> pd.DataFrame:
        return windows(*[{"running_req": 8, "gen_tok_per_s": speed} for speed in speeds])

    row = log_speed_df(lines(100.0, 100.0, 100.0, 100.0, 50.0), lines(50.0, 50.0, 50.0, 50.0, 50.0)).iloc[0]
    # 450 / 5 against 50; the median lines 100 and 50.
    assert (row["client_speedup"], row["median_speedup"]) == pytest.approx((1.8, 2.0))
    assert row["verdict"] == "win"
