from datetime import datetime

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import pytest
from figures import words

from workbench import plot, theme
from workbench.parse.records import EventKind, LogEvent
from workbench.table.columns import WINDOWS, frame

START = datetime(2026, 2, 23, 17, 30, 43)


def windows(*rows: dict[str, object]) -> pd.DataFrame:
    common = {"campaign": "c", "server_id": "s", "time": START, "idle": False, "running_req": 1, "queue_req": 0}
    return frame(WINDOWS, [{**common, "line": line, **row} for line, row in enumerate(rows, 1)])


def event(kind: EventKind, line: int = 2) -> LogEvent:
    return LogEvent(kind=kind, line=line, offset=0, time=START, ranks=frozenset(), text="said")


def test_panels_hold_the_windows() -> None:
    figure = plot.timeline_figure(
        windows(
            {"accept_len": 2.08, "gen_tok_per_s": 52.8, "cuda_graph": False},
            {"accept_len": 1.98, "gen_tok_per_s": 50.4, "cuda_graph": False, "queue_req": 32, "running_req": 48},
        )
    )
    accept, requests, speed, graphs = figure.axes
    assert list(accept.lines[0].get_ydata()) == [2.08, 1.98]
    assert {tuple(line.get_ydata()) for line in requests.lines} == {(1, 48), (0, 32)}
    assert list(speed.lines[0].get_ydata()) == [52.8, 50.4]
    assert "off in all 2 lines" in words(figure)
    assert graphs.get_xlabel().startswith("server's local time on 2026-02-23")


def test_the_share_of_lines_without_graphs_is_said_in_words() -> None:
    on, off = {"cuda_graph": True}, {"cuda_graph": False}
    assert "on in all 3 lines" in words(plot.timeline_figure(windows(on, on, on)))
    assert "off in 25% of 4 lines" in words(plot.timeline_figure(windows(on, off, on, on)))


def test_lines_of_one_second_keep_their_order() -> None:
    figure = plot.timeline_figure(windows({"gen_tok_per_s": 1.0}, {"gen_tok_per_s": 2.0}))
    times = mdates.date2num(figure.axes[2].lines[0].get_xdata())
    assert np.diff(times) * 86400 == pytest.approx(0.5, abs=1e-3)


def test_idle_windows_are_hollow() -> None:
    figure = plot.timeline_figure(windows({"gen_tok_per_s": 0.77, "idle": True}, {"gen_tok_per_s": 50.0}))
    busy, idle = figure.axes[2].lines
    assert (list(busy.get_ydata()), list(idle.get_ydata())) == ([50.0], [0.77])
    assert idle.get_fillstyle() == "none"
    assert "holds idle or start-up time" in words(figure)


def test_events_are_lines_through_every_panel() -> None:
    events = [event(EventKind.RETRACTION), event(EventKind.RETRACTION), event(EventKind.READY)]
    figure = plot.timeline_figure(windows({"gen_tok_per_s": 1.0}, {"gen_tok_per_s": 2.0}), events)
    assert "retraction (2)" in words(figure)
    for ax in figure.axes:
        assert sum(line.get_color() == "#c2410c" and len(line.get_xdata()) == 2 for line in ax.lines) >= 1


def test_without_time_stamps_the_axis_counts_lines() -> None:
    figure = plot.timeline_figure(windows({"gen_tok_per_s": 1.0, "time": None}, {"gen_tok_per_s": 2.0}))
    assert list(figure.axes[2].lines[0].get_xdata()) == [1, 2]
    assert figure.axes[-1].get_xlabel() == "line of the log (not every line has a usable time stamp)"


def test_a_plain_server_has_no_accept_length() -> None:
    figure = plot.timeline_figure(windows({"gen_tok_per_s": 1.0}, {"gen_tok_per_s": 2.0}))
    said = words(figure)
    assert "not in this log: no speculation" in said
    assert "not stated in this log, or no GPU" in said


def test_a_log_without_decode_lines() -> None:
    figure = plot.timeline_figure(windows())
    assert words(figure) == ["The log holds no decode line."]
    assert len(figure.axes) == plot.PANELS


def test_one_window() -> None:
    figure = plot.timeline_figure(windows({"gen_tok_per_s": 1.0, "accept_len": 1.0}))
    assert theme.figure_html(figure, alt="one", caption="one")
