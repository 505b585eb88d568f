"""The run that nobody made and that the numbers speak for."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analysis.answers.common import all_on_cpu, at_lowest, real_runs
from workbench.analysis.frames import Row, least
from workbench.analysis.wording import count, few, span, speed_span


@dataclass(frozen=True, slots=True)
class Missing:
    """A drafter at a shape: ``accept_length`` is what it reached at ``from_tokens``, break-even is that of the shape.

    ``unstated`` are the speeds of the drafter's runs with graphs on that do not state their draft tokens: one of them
    may be this run. ``cycle_ms`` is what a cycle of the shape took, ``plain_ms`` a plain step of the drafter's own
    baseline. ``by_simulation`` says that only runs with simulated acceptance tell the break-even,
    ``has_graphs`` that CUDA graphs can be on or off at all.
    """

    drafter: str
    accept_length: float
    from_tokens: int
    from_graphs: str
    tokens: int
    break_even_low: float
    break_even_high: float
    from_baseline: str
    to_baseline: str
    cycle_ms: tuple[float, float] | None = None
    plain_ms: float | None = None
    unstated: tuple[float, ...] = ()
    by_simulation: bool = False
    has_graphs: bool = True

    @property
    def gain(self) -> float:
        """Speedup to expect: accept length over the middle of the break-even, were that ratio to hold."""
        return 2 * self.accept_length / (self.break_even_low + self.break_even_high)

    @property
    def is_carried(self) -> bool:
        """Whether the break-even was measured against another group's baseline than the drafter's own."""
        return self.from_baseline != self.to_baseline

    @property
    def gain_by_time(self) -> float | None:
        """Speedup to expect from another baseline's cycle, were its milliseconds to hold: those may not shrink as a
        plain step does. ``None`` where nothing is carried over or the times are not known."""
        if not self.is_carried or self.cycle_ms is None or self.plain_ms is None:
            return None
        return 2 * self.accept_length * self.plain_ms / sum(self.cycle_ms)

    @property
    def shape(self) -> str:
        """Draft tokens to measure; both where the accept length is known at almost the same number."""
        ends = sorted({self.tokens, self.from_tokens} if abs(self.tokens - self.from_tokens) <= 2 else {self.tokens})
        return f"{'-'.join(map(str, ends))} draft token{'' if ends == [1] else 's'}"


def never_measured(costs: pd.DataFrame) -> Missing | None:
    """The unmade run with the best expected gain: a drafter's known accept length above a shape's known break-even.

    A shape counts when its break-even was measured with graphs on (or not stated), also under simulated acceptance; the
    drafter's accept length is taken from its own run with the nearest number of draft tokens. At the lowest
    concurrency, and only where more is to be expected than the drafter has reached.
    """
    lowest = at_lowest(costs)
    real = real_runs(lowest).dropna(subset=["drafter"])
    shapes = lowest[_maybe_on(lowest) & lowest["break_even"].notna()].dropna(subset=["num_draft_tokens"])
    reached = real.dropna(subset=["num_draft_tokens", "accept_length"])
    found = [
        missing
        for (campaign, _), shape in shapes.groupby(["campaign", "num_draft_tokens"])
        for _, own in reached[reached["campaign"] == campaign].groupby("drafter")
        if (missing := _missing(shape, own, real[real["campaign"] == campaign])) is not None
    ]
    return max(found, key=lambda missing: missing.gain, default=None)


def _missing(shape: pd.DataFrame, own: pd.DataFrame, real: pd.DataFrame) -> Missing | None:
    tokens, drafter = int(shape["num_draft_tokens"].iloc[0]), str(own["drafter"].iloc[0])
    made = real[(real["drafter"] == drafter) & _maybe_on(real)]
    if ((made["num_draft_tokens"] - tokens).abs() <= 1).any():
        return None
    nearest = least(own.assign(distance=(own["num_draft_tokens"] - tokens).abs()), "distance")
    low, high = float(shape["break_even_low"].min()), float(shape["break_even_high"].max())
    if not nearest["accept_length"] > high or _is_shallower(shape, nearest):
        return None
    missing = Missing(
        drafter=drafter,
        accept_length=float(nearest["accept_length"]),
        from_tokens=int(nearest["num_draft_tokens"]),
        from_graphs={None: "not stated", True: "on", False: "off"}[nearest["cuda_graph"]],
        tokens=tokens,
        break_even_low=low,
        break_even_high=high,
        from_baseline=few(sorted(map(str, shape["baseline_group"].dropna().unique()))),
        to_baseline=str(nearest["baseline_group"]),
        cycle_ms=_ends(shape),
        plain_ms=nearest["t_base_ms"],
        unstated=tuple(made.loc[made["num_draft_tokens"].isna(), "tok_per_s"].dropna().astype(float)),
        by_simulation=bool((shape["origin"] == "simulated").all()),
        has_graphs=not all_on_cpu(real),
    )
    return None if missing.gain <= own["speedup"].max() else missing


def _ends(shape: pd.DataFrame) -> tuple[float, float] | None:
    low, high = shape["t_cycle_ms_low"].min(), shape["t_cycle_ms_high"].max()
    return (float(low), float(high)) if low > 0 and high > 0 else None


def _is_shallower(shape: pd.DataFrame, reached: Row) -> bool:
    """Whether the shape has fewer draft steps than the run that reached the accept length, so would reach less."""
    return reached["num_steps"] is not None and bool((shape["num_steps"].dropna() < reached["num_steps"]).any())


def _maybe_on(rows: pd.DataFrame) -> pd.Series:
    """Whether CUDA graphs were on, as far as is known."""
    return (rows["cuda_graph"] != False).fillna(True).astype(bool)  # noqa: E712 (pandas, three-valued)


def next_run(missing: Missing) -> str:
    """The run to make next, in one short sentence."""
    return f"The run to make next: {missing.drafter} at {missing.shape}{_graphs_on(missing)}, {_promise(missing)}."


def _promise(missing: Missing) -> str:
    by_time = missing.gain_by_time
    expected = f"about {missing.gain:.1f}x expected"
    if not missing.is_carried:
        return expected
    if by_time is None:
        return f"{expected} if break-even carries over from baseline {missing.from_baseline} to {missing.to_baseline}"
    low, high = sorted((by_time, missing.gain))
    if f"{low:.1f}" == f"{high:.1f}":
        return expected
    return (
        f"{low:.1f}x to {high:.1f}x expected, depending on whether the time of a cycle ({by_time:.1f}x) or its "
        f"ratio to a plain step ({missing.gain:.1f}x) carries over from baseline {missing.from_baseline} to "
        f"{missing.to_baseline}"
    )


def _graphs_on(missing: Missing) -> str:
    return " with CUDA graphs on" if missing.has_graphs else ""


def missing_sentence(missing: Missing) -> str:
    """What was never measured, what it promises, and on which condition."""
    unstated = ""
    if missing.unstated:
        speeds = f"{speed_span(missing.unstated)} tok/s"
        states = "does" if len(missing.unstated) == 1 else "do"
        unstated = f" ({count(len(missing.unstated), 'run')} at {speeds} {states} not state the draft tokens)"
    from_graphs = f" with graphs {missing.from_graphs}" if missing.has_graphs else ""
    forced = " by runs with simulated acceptance" if missing.by_simulation else ""
    reached = f"{missing.accept_length:.1f} at {count(missing.from_tokens, 'draft token')}"
    return (
        f"Measure {missing.drafter} at {missing.shape}{_graphs_on(missing)} before collecting more training data: it "
        f"was never measured{unstated}. It reached {reached}{from_graphs}, and break-even at "
        f"{missing.tokens} was {span(missing.break_even_low, missing.break_even_high)}{forced}, so about "
        f"{missing.gain:.1f}x is expected{_carried(missing)}."
    )


def _carried(missing: Missing) -> str:
    if not missing.is_carried:
        return ""
    said = f" if that ratio carries over from baseline {missing.from_baseline} to baseline {missing.to_baseline}"
    by_time = missing.gain_by_time
    if by_time is None or missing.cycle_ms is None:
        return said
    first, last = (f"{end:.1f}" for end in missing.cycle_ms)
    took = first if first == last else f"{first}-{last}"
    plain = f"{missing.plain_ms:.1f} ms"
    return f"{said}, and {by_time:.1f}x if a cycle still takes {took} ms where a plain step takes {plain}"
