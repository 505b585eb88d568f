"""Learning curves of one training: loss and accuracy by depth against the response tokens seen."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, PercentFormatter

from workbench.plot.marks import legend_above, nothing_to_draw
from workbench.theme.style import ROLES, level_styles, themed


@themed
def plot_learning(curve: pd.DataFrame, accuracy: pd.DataFrame, *, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Loss above, below it how often each draft of a chain is right, with the true tokens before it.

    ``curve`` and ``accuracy`` are those of a `workbench.table.training.Training`; depth 1 is the first draft.
    """
    top, bottom = axes[0], axes[-1]
    if curve["loss"].dropna().empty:
        nothing_to_draw(top, "No step of this training was logged.")
        for ax in axes[1:]:
            ax.set_axis_off()
        return axes
    top.plot(curve["response_tokens"], curve["loss"], color=ROLES["speculative"], marker="." if len(curve) < 3 else "")
    top.set_ylabel("loss\n(cross entropy)")
    top.set_ylim(bottom=0)
    styles = level_styles(_depth(depth) for depth in sorted(accuracy["depth"].unique()))
    handles = []
    for depth, line in accuracy.groupby("depth"):
        style = styles[_depth(depth)]
        handles += bottom.plot(
            line["response_tokens"],
            line["accuracy"],
            color=style.colour,
            linestyle=style.linestyle,
            marker="." if len(line) < 3 else "",
            label=_depth(depth),
        )
    bottom.set_ylabel("drafts that are right")
    bottom.set_ylim(bottom=0)
    bottom.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    bottom.xaxis.set_major_formatter(EngFormatter(sep=""))
    bottom.set_xlabel("response tokens seen")
    legend_above(bottom, handles)
    return axes


def _depth(depth: object) -> str:
    return f"draft {depth}"
