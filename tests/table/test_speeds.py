from __future__ import annotations

import pandas as pd
import pytest

from workbench.paths import recorded_dir
from workbench.table import load_tables
from workbench.table.columns import WINDOWS, frame
from workbench.table.lines import lines_of
from workbench.table.speeds import Level, client_like, main_speeds_df


def _line(speed: float, *, running: int = 8, tokens: float | None = 80.0, **more: object) -> dict[str, object]:
    window_s = None if tokens is None or not speed else tokens / speed
    return {"running_req": running, "gen_tok_per_s": speed, "window_tokens": tokens, "window_s": window_s, **more}


def windows(*rows: dict[str, object]) -> pd.DataFrame:
    common = {"dp_rank": 0, "opening": False, "idle": False}
    return frame(WINDOWS, [{**common, "line": number, **row} for number, row in enumerate(rows, 1)])


def main_level_speeds(table: pd.DataFrame) -> tuple[float | None, float | None]:
    """Median and client-like speed at the main load of one log."""
    speeds = main_speeds_df(table.assign(one=0), ["one"])
    found = [None if pd.isna(value) else float(value) for row in speeds.to_numpy() for value in row]
    return (found[0], found[1]) if found else (None, None)


def levels_of(table: pd.DataFrame) -> dict[int, Level]:
    return client_like(lines_of(table))


def test_client_like_speed_is_all_tokens_over_all_time() -> None:
    # 80 tokens in 1 s and 80 in 3 s
    row = levels_of(windows(_line(80.0), _line(80.0 / 3)))[8]
    assert row.client == pytest.approx(40.0)
    assert row.median == pytest.approx((80 + 80 / 3) / 2)


def test_the_first_line_of_a_phase_is_counted_at_the_mean_of_both_loads() -> None:
    # One running before, 8 now: (1 + 8) / 2 / 8 of 80 tokens are 45, at 90 tok/s half a second; then 1 s.
    table = windows(_line(10.0, running=1, tokens=10.0), _line(90.0, opening=True, before_req=1), _line(80.0))
    row = levels_of(table)[8]
    assert (row.tokens, row.seconds, row.opening_s) == (125.0, 1.5, 0.5)
    assert row.opening_share == pytest.approx(1 / 3)
    assert row.num_windows == 2


def test_a_line_that_waited_is_left_out_and_its_time_is_kept() -> None:
    lines = [
        _line(0.77, running=1, tokens=10.0, opening=True, idle=True),
        *(_line(100.0, running=1, tokens=10.0) for _ in range(3)),
    ]
    row = levels_of(windows(*lines))[1]
    assert (row.client, row.median) == pytest.approx((100.0, 100.0))
    assert row.num_windows == 3
    assert row.left_out_s == pytest.approx(10 / 0.77)


def test_lines_without_speed_or_load_are_left_out() -> None:
    lines = [_line(80.0), _line(float("nan")), _line(0.0), _line(80.0, running=0)]
    assert [level.num_windows for level in levels_of(windows(*lines)).values()] == [1]


def test_where_the_tokens_are_not_known_only_the_median_is() -> None:
    row = levels_of(windows(_line(80.0, tokens=None), _line(60.0, tokens=None)))[8]
    assert row.median == 70.0
    assert row.client is None
    assert main_level_speeds(windows(_line(80.0, tokens=None))) == (80.0, None)


def test_the_main_load_is_the_one_of_most_lines_and_of_two_the_higher() -> None:
    ramp = [_line(10.0, running=1, tokens=10.0), _line(20.0, running=2, tokens=20.0)]
    assert main_level_speeds(windows(*ramp, _line(80.0), _line(160.0))) == pytest.approx((120.0, 160 / 1.5))
    assert main_level_speeds(windows(*ramp)) == (20.0, 20.0)


def test_ranks_are_added_up_each_at_its_own_load() -> None:
    rank0 = [_line(80.0), _line(80.0), _line(1.0, running=1, tokens=1.0)]
    rank1 = [_line(70.0, running=7, tokens=70.0, dp_rank=1)] * 2
    assert main_level_speeds(windows(*rank0, *rank1)) == (150.0, 150.0)


def test_no_line_no_speed() -> None:
    assert main_level_speeds(windows()) == (None, None)
    assert main_level_speeds(windows(_line(0.77, idle=True))) == (None, None)
    assert levels_of(windows()) == {}


# By zcat, grep, sort and awk over the recorded logs: the median speed of all lines with 8 and 32 running requests.
MEDIANS = {"base": (7072.11, 25731.16), "eagle-flag": (3037.43, 10918.755), "sim25-s3": (6863.71, 22155.19)}


@pytest.mark.parametrize("server", MEDIANS)
def test_runs_and_logs_give_one_number(server: str) -> None:
    tables = load_tables(recorded_dir() / "h200_smollm2")
    runs = tables.runs.set_index("run_id")
    levels = client_like(tables.logs["h200_smollm2", server].lines)
    for load, median in zip((8, 32), MEDIANS[server], strict=True):
        assert runs.loc[f"{server}-c{load}", "log_median_tok_per_s"] == pytest.approx(median)
        assert levels[load].median == pytest.approx(median)
        assert runs.loc[f"{server}-c{load}", "log_client_tok_per_s"] == pytest.approx(levels[load].client)
