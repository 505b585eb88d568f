"""The run that nobody made and that the numbers speak for."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analysis.answers.common import at_lowest, real_runs
from workbench.analysis.frames import least
from workbench.analysis.wording import count, few, span, speed_span


@dataclass(frozen=True, slots=True)
class Missing:
    """A drafter at a shape: ``accept_length`` is what it reached at ``from_tokens``, break-even is that of the shape.

    ``unstated`` are the speeds of the drafter's runs with graphs on that do not state their draft tokens: one of them
    may be this run.
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
    unstated: tuple[float, ...] = ()

    @property
    def gain(self) -> float:
        """Speedup to expect: accept length over the middle of the break-even."""
        return 2 * self.accept_length / (self.break_even_low + self.break_even_high)

    @property
    def shape(self) -> str:
        """Draft tokens to measure; both where the accept length is known at almost the same number."""
        ends = sorted({self.tokens, self.from_tokens} if abs(self.tokens - self.from_tokens) <= 2 else {self.tokens})
        return f"{'-'.join(map(str, ends))} draft token{'' if ends == [1] else 's'}"


def never_measured(costs: pd.DataFrame) -> Missing | None:
    """The unmade run with the best expected gain: a drafter's known accept length above a shape's known break-even.

    A shape counts when its break-even was measured with graphs on (or not stated); the drafter's accept length is
    taken from its own run with the nearest number of draft tokens. At the lowest concurrency.
    """
    real = at_lowest(real_runs(costs)).dropna(subset=["drafter"])
    shapes = real[_maybe_on(real) & real["break_even"].notna()].dropna(subset=["num_draft_tokens"])
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
    if not nearest["accept_length"] > high:
        return None
    return Missing(
        drafter=drafter,
        accept_length=float(nearest["accept_length"]),
        from_tokens=int(nearest["num_draft_tokens"]),
        from_graphs={None: "not stated", True: "on", False: "off"}[nearest["cuda_graph"]],
        tokens=tokens,
        break_even_low=low,
        break_even_high=high,
        from_baseline=few(sorted(map(str, shape["baseline_group"].dropna().unique()))),
        to_baseline=str(nearest["baseline_group"]),
        unstated=tuple(made.loc[made["num_draft_tokens"].isna(), "tok_per_s"].dropna().astype(float)),
    )


def _maybe_on(rows: pd.DataFrame) -> pd.Series:
    """Whether CUDA graphs were on, as far as is known."""
    return (rows["cuda_graph"] != False).fillna(True).astype(bool)  # noqa: E712 (pandas, three-valued)


def next_run(missing: Missing) -> str:
    """The run to make next, in one short sentence."""
    return (
        f"The run to make next: {missing.drafter} at {missing.shape} with CUDA graphs on, about "
        f"{missing.gain:.1f}x expected."
    )


def missing_sentence(missing: Missing) -> str:
    """What was never measured, what it promises, and on which condition."""
    apart = missing.from_baseline != missing.to_baseline
    carried = (
        f", if that ratio carries over from baseline {missing.from_baseline} to baseline {missing.to_baseline}"
        if apart
        else ""
    )
    unstated = ""
    if missing.unstated:
        speeds = f"{speed_span(missing.unstated)} tok/s"
        states = "does" if len(missing.unstated) == 1 else "do"
        unstated = f" ({count(len(missing.unstated), 'run')} at {speeds} {states} not state the draft tokens)"
    reached = f"{missing.accept_length:.1f} at {count(missing.from_tokens, 'draft token')}"
    return (
        f"Measure {missing.drafter} at {missing.shape} with CUDA graphs on before collecting more training data: it "
        f"was never measured{unstated}. It reached {reached} with graphs {missing.from_graphs}, "
        f"and break-even at {missing.tokens} was "
        f"{span(missing.break_even_low, missing.break_even_high)}, so about {missing.gain:.1f}x is expected{carried}."
    )
