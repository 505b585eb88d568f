"""Two runs of a campaign beside each other."""

from __future__ import annotations

import pandas as pd

from workbench import show
from workbench.analysis.frames import Row, records
from workbench.analysis.wording import number, speed_unit, times
from workbench.explore.displays import Displayed, cell
from workbench.explore.runs import OneRun
from workbench.table.columns import RUNS
from workbench.theme.show import heading, show_table

LOAD = ("prompt_set", "max_concurrency", "max_new_tokens", "ignore_eos", "temperature", "baseline_group")
SETTINGS = (
    *("role", "drafter", "training_samples", "num_steps", "eagle_topk", "num_draft_tokens", "speculative_algorithm"),
    *(
        "simulated_accept_length",
        "cuda_graph_share",
        *LOAD,
        "max_running_requests",
        "engine",
        "sglang_version",
        "target",
    ),
    *("machine", "gpu_name", "device", "dtype", "tp_size", "dp_size", "places", "cpus", "origin", "status"),
)
FIGURES = (
    *("accept_length", "accept_rate", "decode_tok_per_s", "output_tok_per_s", "log_median_tok_per_s"),
    *("energy_j_per_tok", "num_requests", "num_failed", "completion_tokens", "peak_queue_req"),
)
_SPEEDS = ("decode_tok_per_s", "output_tok_per_s")
_UNITS = {column.name: column.unit for column in RUNS}


class Comparison(Displayed):
    """What two runs have different, and their figures: ``sentence``, and ``df`` with a row a column."""

    def __init__(self, a: OneRun, b: OneRun, speedups: pd.DataFrame) -> None:
        left, right = (records(run.row.to_frame().T)[0] for run in (a, b))
        self.sentence = _sentence(left, right, speedups)
        differ = [name for name in SETTINGS if left.get(name) != right.get(name)]
        told = [name for name in FIGURES if left.get(name) is not None or right.get(name) is not None]
        self._same = [name for name in SETTINGS if name not in differ and left.get(name) is not None]
        self._left = left
        rows = [_row(name, left, right, a.run_id, b.run_id) for name in (*told, *differ)]
        self.df = pd.DataFrame(rows, columns=["what", a.run_id, b.run_id, "ratio"])

    def _show(self) -> None:
        show.plain(self.sentence)
        headings = {column: column for column in self.df.columns}  # names of runs stand as they are
        caption = "Figures, and settings that differ."
        show_table(self.df, caption=caption, columns=headings, missing="\N{EN DASH}", name="comparison")
        same = "; ".join(f"{heading(name)}: {cell(self._left[name])}" for name in self._same)
        if same:
            show.note(f"The same in both: {same}.")


def _row(name: str, left: Row, right: Row, a: str, b: str) -> Row:
    first, second = left.get(name), right.get(name)
    numbers = name in FIGURES and isinstance(first, float) and isinstance(second, float) and second != 0
    ratio = f"{first / second:.2f}" if numbers else None  # type: ignore[operator]
    return {"what": _named(name), a: cell(first), b: cell(second), "ratio": ratio}


def _named(name: str) -> str:
    """A column in words, with its unit."""
    words, unit = heading(name), _UNITS.get(name)
    if not unit or "(" in words:
        return words
    return f"{words.removesuffix(' j per tok')} ({unit})"


def _sentence(left: Row, right: Row, speedups: pd.DataFrame) -> str:
    """Whether their speeds may be compared, and what follows."""
    differ = [name for name in LOAD if None not in (left.get(name), right.get(name)) and left[name] != right[name]]
    if differ:
        return f"Not the same load, so their speeds say nothing: they differ in {', '.join(map(heading, differ))}."
    judged = _judged(left, right, speedups)
    if judged is not None:
        return judged
    ratio = next((left[name] / right[name] for name in _SPEEDS if left.get(name) and right.get(name)), None)
    if ratio is None:
        return "No speed was measured on both."
    return (
        f"{left['run_id']} runs at {times(ratio)} the speed of {right['run_id']}; a verdict needs one run "
        "with speculation and its baseline."
    )


def _judged(left: Row, right: Row, speedups: pd.DataFrame) -> str | None:
    """The verdict of the pages, where one of both is speculative and the other a baseline at its load."""
    if {left["role"], right["role"]} != {"baseline", "speculative"}:
        return None
    run = left if left["role"] == "speculative" else right
    found = [row for row in records(speedups) if row["run_id"] == run["run_id"] and row["speedup"] is not None]
    if not found:
        return None
    row = found[0]
    known = None not in (row["low"], row["high"])
    interval = f" (95 % {row['low']:.2f} to {row['high']:.2f})" if known and row["low"] < row["high"] else ""
    verdict = "of acceptance that was forced, so no verdict" if row["origin"] == "simulated" else row["verdict"]
    why = f": {row['reason']}" if row["verdict"] == "not decidable" and row["reason"] else ""
    unit = speed_unit([row["basis"]])
    return (
        f"{run['run_id']} reached {number(row['tok_per_s'])} {unit} against {number(row['base_tok_per_s'])} without "
        f"speculation (all baseline passes of its load), {times(row['speedup'])}{interval}: {verdict}{why}."
    )
