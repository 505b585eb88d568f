"""One server log on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workbench.parse.records import EventKind, LogEvent
from workbench.plot.marks import column, legend_above, nothing_to_draw
from workbench.theme.style import ROLES, new_figure, themed

PANELS = 4
_EVENTS: dict[EventKind, tuple[str, str, Literal["-", "--", "-.", ":"]]] = {
    EventKind.RETRACTION: ("retraction", "#c2410c", "-"),
    EventKind.FLUSH: ("cache flushed", "#767676", ":"),
    EventKind.OOM: ("out of memory", "#8a3f8f", "-"),
    EventKind.WATCHDOG: ("watchdog", "#8a3f8f", "--"),
    EventKind.NCCL: ("NCCL error", "#8a3f8f", "-."),
    EventKind.CHILD_DEATH: ("process died", "#262626", "--"),
    EventKind.EXCEPTION: ("exception", "#262626", "-."),
}


def timeline_figure(windows: pd.DataFrame, events: Sequence[LogEvent] = ()) -> Figure:
    """The timeline in a figure of its own."""
    figure, axes = new_figure(PANELS, sharex=True, height=7.2)
    plot_timeline(windows, axes=axes, events=events)
    return figure


@themed
def plot_timeline(windows: pd.DataFrame, *, axes: Sequence[Axes], events: Sequence[LogEvent] = ()) -> Sequence[Axes]:
    """Accept length, running and queued requests, speed, and CUDA graphs, in four Axes that share the time.

    Windows that hold idle or start-up time are hollow: their speed means nothing. Retractions, flushes and errors are
    vertical lines through all four. Without time stamps the axis counts the lines of the log.
    """
    if windows.empty:
        nothing_to_draw(axes[0], "The log holds no decode line.")
        for ax in axes[1:]:
            ax.set_axis_off()
        return axes
    x = _places(windows)
    busy = ~windows["idle"].fillna(False).astype(bool)
    _accept_length(axes[0], windows, x, busy)
    _requests(axes[1], windows, x)
    _speed(axes[2], windows, x, busy)
    _graphs(axes[3], windows, x)
    marks = _event_lines(axes, windows, events)
    idle = Line2D([], [], linestyle="none", marker="o", fillstyle="none", color=ROLES["missing"])
    idle.set_label("holds idle or start-up time")
    legend_above(axes[0], [*([] if busy.all() else [idle]), *marks])
    _time_axis(axes[-1], windows)
    axes[0].figure.align_ylabels()
    return axes


def _has_time(windows: pd.DataFrame) -> bool:
    return bool(windows["time"].notna().all())


def _places(windows: pd.DataFrame) -> pd.Series:
    """Time of each window; stamps are whole seconds, so the lines of one second are spread over it in their order."""
    if not _has_time(windows):
        return column(windows, "line")
    same = windows.groupby("time")["line"]
    share = same.cumcount() / same.transform("size")
    return windows["time"] + pd.to_timedelta(share, unit="s")


def _accept_length(ax: Axes, windows: pd.DataFrame, x: pd.Series, busy: pd.Series) -> None:
    values = column(windows, "accept_len")
    ax.set_ylabel("accept\nlength")
    if values.isna().all():
        _say(ax, "not in this log: no speculation")
        return
    _dots(ax, x, values, busy)
    ax.set_ylim(min(0.9, values.min()), values.max() + 0.15 * max(values.max() - 1, 0.5))


def _requests(ax: Axes, windows: pd.DataFrame, x: pd.Series) -> None:
    running, queued = column(windows, "running_req"), column(windows, "queue_req")
    ax.set_ylabel("requests")
    ax.step(x, running, where="post", color=ROLES["speculative"], label="running")
    ax.step(x, queued, where="post", color=ROLES["break-even"], linestyle="--", label="queued")
    _from_zero(ax, pd.concat([running, queued]), 1.5)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.legend(loc="upper left", ncols=2)


def _speed(ax: Axes, windows: pd.DataFrame, x: pd.Series, busy: pd.Series) -> None:
    ax.set_ylabel("tok/s")
    _dots(ax, x, column(windows, "gen_tok_per_s"), busy)
    _from_zero(ax, column(windows, "gen_tok_per_s"), 1.15)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _from_zero(ax: Axes, values: pd.Series, room: float) -> None:
    highest = float(values.max())
    ax.set_ylim(0, highest * room if highest > 0 else 1)


def _graphs(ax: Axes, windows: pd.DataFrame, x: pd.Series) -> None:
    on = column(windows, "cuda_graph")
    ax.set_ylabel("CUDA\ngraphs")
    ax.set_yticks([0, 1], ["off", "on"])
    ax.set_ylim(-0.5, 1.5)
    if on.isna().all():
        _say(ax, "not stated in this log, or no GPU")
        return
    for value, colour in ((1, ROLES["speculative"]), (0, ROLES["break-even"])):
        ax.plot(x[on == value], on[on == value], "|", color=colour, markersize=11)
    ax.text(0.995, 0.5, _graph_share(on.dropna()), transform=ax.transAxes, ha="right", va="center")


def _graph_share(on: pd.Series) -> str:
    if on.eq(on.iloc[0]).all():
        return f"{'on' if on.iloc[0] else 'off'} in all {len(on):,} lines"
    return f"off in {(on == 0).mean():.0%} of {len(on):,} lines"


def _dots(ax: Axes, x: pd.Series, values: pd.Series, busy: pd.Series) -> None:
    ax.plot(x[busy], values[busy], ".", color=ROLES["speculative"], markersize=6)
    ax.plot(x[~busy], values[~busy], "o", fillstyle="none", color=ROLES["missing"], markersize=6)


def _say(ax: Axes, sentence: str) -> None:
    ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", color=ROLES["missing"])
    ax.set_yticks([])


def _event_lines(axes: Sequence[Axes], windows: pd.DataFrame, events: Sequence[LogEvent]) -> list[Artist]:
    drawn: dict[EventKind, list[datetime | int]] = {}
    timed = _has_time(windows)
    for event in events:
        place = event.time if timed else event.line
        if event.kind in _EVENTS and place is not None:
            drawn.setdefault(event.kind, []).append(place)
    handles: list[Artist] = []
    for kind, places in drawn.items():
        word, colour, line = _EVENTS[kind]
        for ax in axes:
            for place in np.unique(np.array(places)):
                ax.axvline(place, color=colour, linestyle=line, linewidth=1, zorder=1)
        handles.append(Line2D([], [], color=colour, linestyle=line, label=f"{word} ({len(places)})"))
    return handles


def _time_axis(ax: Axes, windows: pd.DataFrame) -> None:
    if not _has_time(windows):
        ax.set_xlabel("line of the log (not every line has a usable time stamp)")
        return
    first, last = windows["time"].min(), windows["time"].max()
    locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    if first.date() == last.date():
        ax.xaxis.set_major_formatter(DateFormatter("%H:%M:%S"))  # type: ignore[no-untyped-call]
        ax.set_xlabel(f"server's local time on {first.date()}; lines of one second in their order")
    else:
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))  # type: ignore[no-untyped-call]
        ax.set_xlabel(f"server's local time, {first.date()} to {last.date()}")
