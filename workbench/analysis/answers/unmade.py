"""What the runs cannot tell, and the run that would."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analysis.answers.common import real_runs
from workbench.analysis.frames import least, records
from workbench.analysis.wording import one_of, span


@dataclass(frozen=True, slots=True)
class Missing:
    """A run that nobody made and that the numbers speak for."""

    drafter: str
    accept_length: float
    tokens_low: int
    tokens_high: int
    break_even_low: float
    break_even_high: float
    gain: float
    from_baseline: str
    to_baseline: str


def never_measured(costs: pd.DataFrame, runs: pd.DataFrame) -> Missing | None:
    """The unmade run with the best expected gain: a drafter's known accept length above a shape's known break-even.

    A shape counts when its break-even was measured with graphs on (or not stated); the drafter's accept length is
    taken from its own run with the nearest number of draft tokens.
    """
    groups = runs.set_index(["campaign", "run_id"])["baseline_group"]
    real = real_runs(costs).dropna(subset=["num_draft_tokens", "drafter"])
    real = real.assign(group=[groups.get((row["campaign"], row["run_id"]), "") for row in records(real)])
    shapes = real[(real["cuda_graph"] != False).fillna(True) & real["break_even"].notna()]  # noqa: E712
    found = [
        missing
        for _, group in shapes.groupby("num_draft_tokens")
        for _, own in real.dropna(subset=["accept_length"]).groupby("drafter")
        if (missing := _missing(group, own, real)) is not None
    ]
    return max(found, key=lambda m: m.gain, default=None)


def _missing(shape: pd.DataFrame, own: pd.DataFrame, real: pd.DataFrame) -> Missing | None:
    tokens, drafter = int(shape["num_draft_tokens"].iloc[0]), str(own["drafter"].iloc[0])
    made = real[(real["drafter"] == drafter) & (real["cuda_graph"] != False).fillna(True)]  # noqa: E712
    if ((made["num_draft_tokens"] - tokens).abs() <= 1).any():
        return None
    distance = (own["num_draft_tokens"] - tokens).abs()
    nearest = least(own.assign(distance=distance), "distance")
    low, high = shape["break_even_low"].min(), shape["break_even_high"].max()
    if nearest["accept_length"] <= high:
        return None
    other = int(nearest["num_draft_tokens"])
    middle = (low + high) / 2
    return Missing(
        drafter,
        float(nearest["accept_length"]),
        min(tokens, other) if abs(tokens - other) <= 2 else tokens,
        max(tokens, other) if abs(tokens - other) <= 2 else tokens,
        float(low),
        float(high),
        float(nearest["accept_length"] / middle),
        one_of(sorted(shape["group"].unique())),
        str(nearest["group"]),
    )


def next_run(missing: Missing) -> str:
    """The run to make next, in one short sentence."""
    return (
        f"The run to make next: {missing.drafter} at {_tokens(missing)} draft tokens with CUDA graphs on, about "
        f"{missing.gain:.1f}x expected."
    )


def missing_sentence(missing: Missing) -> str:
    """What was never measured, what it promises, and on which condition."""
    carried = (
        f", if that ratio carries over from baseline {missing.from_baseline} to baseline {missing.to_baseline}"
        if missing.from_baseline != missing.to_baseline
        else ""
    )
    needed = span(missing.break_even_low, missing.break_even_high)
    return (
        f"{missing.drafter}'s accept length {missing.accept_length:.1f} at {_tokens(missing)} draft tokens with CUDA "
        f"graphs on was never measured: break-even there was {needed}, so about "
        f"{missing.gain:.1f}x is expected{carried}. Measure that one run before collecting more training data."
    )


def _tokens(missing: Missing) -> str:
    ends = dict.fromkeys((missing.tokens_low, missing.tokens_high))
    return "-".join(str(end) for end in ends)


def confounded(costs: pd.DataFrame) -> str | None:
    """Pairs of runs of one drafter that differ in draft tokens while their steps are unknown or differ too."""
    real = real_runs(costs).dropna(subset=["num_draft_tokens", "drafter"])
    chain = real["num_draft_tokens"] == real["num_steps"] + 1
    open_shape = real[~chain.fillna(False).astype(bool)]
    for (drafter, graphs), group in open_shape.groupby(["drafter", "cuda_graph"]):
        tokens = sorted(group["num_draft_tokens"].unique(), reverse=True)
        if len(tokens) > 1:
            state = "on" if graphs else "off"
            return (
                f"From {int(tokens[0])} to {int(tokens[-1])} draft tokens ({drafter}, CUDA graphs {state}) the number "
                "of steps changed too or is not known, so the two effects cannot be separated."
            )
    return None
