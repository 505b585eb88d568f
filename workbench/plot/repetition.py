"""Accept length against training size, with and without answers that repeat themselves."""

from __future__ import annotations

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from workbench.analysis.scaling import ScalingFit
from workbench.plot.marks import column, draw_points, legend_above, notes_below, nothing_to_draw
from workbench.plot.scaling import ACCEPT_LENGTH, size_axis
from workbench.theme.style import level_styles, themed

_WHOLE, _VARIED = "all answers", "without repetitive answers"


@themed
def plot_repetition(whole: ScalingFit | None, varied: ScalingFit | None, *, ax: Axes) -> Axes:
    """The points and curves of the same drafters on all prompts, and on those that are not answered by repetition."""
    if whole is None or varied is None or varied.points.empty:
        return nothing_to_draw(ax, "No curve is left without the answers that repeat themselves, or none is known.")
    styles = level_styles((_WHOLE, _VARIED))
    handles: list[Artist] = []
    sizes = whole.points[whole.x]
    size_axis(ax, whole.x, float(sizes.min()), float(sizes.max()))
    for name, fit in ((_WHOLE, whole), (_VARIED, varied)):
        style, points = styles[name], fit.points
        for origin, own in points.groupby("origin"):
            x, y, low, high = (column(own, each) for each in (fit.x, "accept_length", "low", "high"))
            draw_points(ax, x, y, low, high, colour=style.colour, origin=origin)
        inside = fit.band[~fit.band["extrapolated"]]
        handles += ax.plot(inside["x"], inside["fit"], color=style.colour, linestyle=style.linestyle, label=name)
    ax.set_ylabel(ACCEPT_LENGTH)
    ax.margins(y=0.12)
    legend_above(ax, handles)
    notes_below(ax, "Bars are 95 % intervals over prompts; lines are the fits of each.")
    return ax
