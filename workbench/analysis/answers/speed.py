"""Does it pay, where, and how sure is that."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import count, draft_tokens, real_runs
from workbench.analysis.frames import Row, most, records
from workbench.analysis.wording import number, one_of, times

WIDE = 0.3  # an interval wider than this share of its speedup is called wide


def pays(speedups: pd.DataFrame) -> str:
    """Whether any configuration beats its baseline, with the best one's numbers. Simulated runs do not count."""
    real = speedups[(speedups["origin"] != "simulated") & speedups["speedup"].notna()]
    if real.empty:
        return f"Whether speculation pays was not measured: {_only_simulated(speedups)}."
    wins = real[real["verdict"] == "win"]
    if len(wins):
        best = most(wins, "speedup")
        where = one_of(f"{int(c)}" for c in sorted(wins["max_concurrency"].dropna().unique()))
        return f"Speculation pays at concurrency {where}: {best['label']} gives {_gain(best)} the baseline."
    best = most(real, "speedup")
    if (real["speedup"] < 1).all():
        lost = int((real["verdict"] == "loss").sum())
        certain = f", {lost} of {len(real)} beyond noise" if lost else ""
        head = "Do not enable speculation here: nothing" if lost > len(real) / 2 else "Nothing"
        return (
            f"{head} beat the baseline; the best of {count(len(real), 'run')} ({best['label']}) reached "
            f"{number(best['tok_per_s'])} tok/s against {number(best['base_tok_per_s'])}, {_gain(best)}{certain}."
        )
    return f"Whether speculation pays is not decided: the best ({best['label']}) gives {_gain(best)} the baseline."


def _only_simulated(speedups: pd.DataFrame) -> str:
    forced = speedups[(speedups["origin"] == "simulated") & speedups["speedup"].notna()]
    if forced.empty:
        return "no sound speculative run has a speed beside a baseline's"
    said = ", ".join(
        f"{times(row['speedup'])} at concurrency {row['max_concurrency']}"
        for row in records(forced.sort_values("max_concurrency"))
    )
    return f"the only sound speculative runs have their accept length forced ({said})"


def _gain(row: Row) -> str:
    interval = f" [{row['low']:.2f}, {row['high']:.2f}]" if row["low"] is not None and row["low"] != row["high"] else ""
    return f"{times(row['speedup'])}{interval}"


def best_shape(costs: pd.DataFrame) -> str:
    """The configuration with the highest speed over its baseline, and how the others compare."""
    known = real_runs(costs).dropna(subset=["speedup", "num_draft_tokens"])
    if known.empty:
        return "Which number of draft tokens is best was not measured: no run has both its shape and a speed."
    best = most(known, "speedup")
    others = known.groupby("num_draft_tokens")["speedup"].max()
    ranking = ", ".join(f"{tokens}: {times(value)}" for tokens, value in others.items())
    verb = "is best" if best["speedup"] >= 1 else "comes nearest, and still loses"
    return (
        f"{draft_tokens(best['num_draft_tokens']).capitalize()} {verb}: {best['label']} gives "
        f"{times(best['speedup'])} its baseline (best by draft tokens {ranking})."
    )


def by_concurrency(speedups: pd.DataFrame) -> str | None:
    """The best speedup at each concurrency, where more than one was measured."""
    known = speedups[(speedups["origin"] != "simulated")].dropna(subset=["speedup", "max_concurrency"])
    best = known.groupby("max_concurrency")["speedup"].max()
    if len(best) < 2:
        return "Only one concurrency was measured with a baseline beside it." if len(best) else None
    said = ", ".join(f"{times(value)} at {concurrency}" for concurrency, value in best.items())
    return f"Best speedup by concurrency: {said}."


def timing_noise(speedups: pd.DataFrame, runs: pd.DataFrame, drift: pd.DataFrame) -> str | None:
    """Why the speedup intervals are wide, where they are."""
    known = speedups.dropna(subset=["speedup", "low", "high"])
    width = ((known["high"] - known["low"]) / known["speedup"]).median() if len(known) else 0.0
    if not width > WIDE:
        return None
    reasons = []
    if len(drift) and drift["relative"].sub(1).abs().max() > 0:
        reasons.append(f"passes of the same baseline differ by up to {drift['relative'].sub(1).abs().max():.0%}")
    alive = runs["servers_alive"].dropna()
    if len(alive) and alive.max() > 1:
        reasons.append(f"{int(alive.min())} to {int(alive.max())} servers were alive on the GPU")
    repeats = runs.loc[runs["role"] == "speculative", "repeats"].dropna()
    if len(repeats):
        reasons.append(
            f"a configuration has {int(repeats.median())} pass{'es' if repeats.median() > 1 else ''} in most cases"
        )
    return (
        f"Timing intervals are wide ({width:.0%} of the speedup in the middle): {'; '.join(reasons) or 'few passes'}."
    )
