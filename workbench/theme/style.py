"""Colours by role, markers by origin, fonts. All colours keep at least 3:1 on white and differ to colour-blind eyes."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WIDTH = 6.8  # inches; with 11 pt text a page as narrow as a phone stays legible
_BLUE, _VERMILION, _GREEN, _PURPLE = "#0067b0", "#c2410c", "#00735c", "#8a3f8f"
_INK, _GREY = "#262626", "#767676"

ROLES = {
    "baseline": _INK,
    "speculative": _BLUE,
    "break-even": _VERMILION,
    "win": _GREEN,
    "loss": _VERMILION,
    "noise": _GREY,
    "not decidable": _GREY,
    "published": _GREY,
    "missing": "#595959",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """The marker of an origin; half-filled and hollow ones are figures with less behind them."""

    marker: str
    fill: Literal["full", "left", "none"]
    words: str


ORIGINS = {
    "measured": Mark("o", "full", "measured here"),
    "recorded": Mark("s", "full", "recorded"),
    "noted": Mark("D", "left", "noted by hand"),
    "simulated": Mark("^", "none", "simulated acceptance"),
    "published": Mark("x", "none", "published elsewhere"),
    "imported": Mark("P", "left", "imported from another tool"),
}
UNKNOWN_ORIGIN = Mark("h", "none", "origin not stated")

_RC: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": _GREY,
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that pages look alike everywhere
    "font.size": 11,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.8,
    "legend.fontsize": 10.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 7,
    "savefig.facecolor": "white",
    "text.color": _INK,
    "text.usetex": False,
    "xtick.color": _GREY,
    "xtick.labelcolor": _INK,
    "xtick.labelsize": 10.5,
    "ytick.color": _GREY,
    "ytick.labelcolor": _INK,
    "ytick.labelsize": 10.5,
}

P = ParamSpec("P")
R = TypeVar("R")


def themed(function: Callable[P, R]) -> Callable[P, R]:
    """Run a drawing function under the theme, whatever the caller's matplotlib settings are."""

    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(_RC):
            return function(*args, **kwargs)

    return inner


@themed
def new_figure(
    rows: int = 1, cols: int = 1, *, width: float = WIDTH, height: float | None = None, sharex: bool = False
) -> tuple[Figure, Any]:
    """A figure outside pyplot, so that nothing stays open, and its Axes: one, or a list of rows x cols."""
    figure = Figure(figsize=(width, height or (4.2 if rows == 1 else 1.6 * rows + 0.8)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, cols, sharex=sharex, squeeze=False).flat)
    return figure, axes[0] if len(axes) == 1 else axes


def rows_height(rows: int, each: float = 0.5) -> float:
    """Height in inches of a figure with ``rows`` entries of ``each`` inches."""
    return 1.3 + each * max(rows, 2)


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    colour: str
    linestyle: str | tuple[int, tuple[float, ...]]


LINES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-",
    (0, (5.0, 2.0)),
    (0, (1.2, 1.5)),
    (0, (5.0, 1.5, 1.2, 1.5)),
)
_SERIES = tuple(SeriesStyle(colour, line) for line in LINES for colour in (_BLUE, _GREEN, _PURPLE))


def series_styles(names: Iterable[str]) -> dict[str, SeriesStyle]:
    """A style for each name, chosen by the name itself, so that it is the same in every figure.

    Where two names of one figure would share a style, the later in the alphabet takes the next free one; after twelve
    names styles repeat.
    """
    styles: dict[str, SeriesStyle] = {}
    free = list(_SERIES)
    for name in sorted(set(names)):
        wanted = _SERIES[zlib.crc32(name.encode()) % len(_SERIES)]
        free = free or list(_SERIES)
        styles[name] = wanted if wanted in free else free[0]
        free.remove(styles[name])
    return styles


def level_styles(names: Iterable[str]) -> dict[str, SeriesStyle]:
    """Styles of the levels of one figure, in the order given: colours differ before lines do."""
    ordered = dict.fromkeys(names)
    return {name: _SERIES[place % len(_SERIES)] for place, name in enumerate(ordered)}


def safe_label(text: object, width: int = 44) -> str:
    """Outside text as one line that matplotlib draws as it is: no mathtext, no unknown glyphs, cut in the middle."""
    line = " ".join(str(text).split())
    if len(line) > width:
        head = (width - 1) * 2 // 3
        line = f"{line[:head]}…{line[head + 1 - width :]}"
    shown = "".join(c if c.isprintable() and ord(c) in _glyphs() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return shown.replace("$", r"\$")


@functools.cache
def _glyphs() -> frozenset[int]:
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    return frozenset(font.get_charmap())
