"""Does it pay, where, and how sure is that."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analysis.answers.common import real_runs, run_name
from workbench.analysis.frames import Row, most, records
from workbench.analysis.intervals import SHORT_S
from workbench.analysis.wording import capital, count, number, one_of, span, speed_unit, times

WIDE = 0.3  # an interval wider than this share of its speedup is called wide
UNBOUNDED = 10.0  # an interval whose ends differ by more than this factor says nothing


def pays(speedups: pd.DataFrame) -> str:
    """Whether any configuration beats its baseline, with the best one's numbers. Simulated runs do not count."""
    real = real_runs(speedups).dropna(subset=["speedup"])
    if real.empty:
        return f"Whether speculation pays was not measured: {_only_simulated(speedups)}."
    wins = real[real["verdict"] == "win"]
    if len(wins):
        return f"Speculation pays{_at_concurrency(wins, 'and')}: {_best(wins, 'winning run')}."
    if (real["speedup"] >= 1).any():
        best = most(real, "speedup")
        why = ", within noise" if best["verdict"] == "noise" else f"; no verdict: {best['reason'] or 'too few passes'}"
        return f"Whether speculation pays is not decided: {_best(real)}{why}."
    beaten = f"nothing beat the baseline{_at_concurrency(real, 'or')}"
    lost = int((real["verdict"] == "loss").sum())
    head = f"Do not enable speculation here: {beaten}" if lost > len(real) / 2 else capital(beaten)
    sure = f"; {lost} of {count(len(real), 'run')} {'loses' if lost == 1 else 'lose'} beyond noise" if lost else ""
    if lost == len(real) == 1:
        sure = ", a loss beyond noise"
    if (real["verdict"] == "noise").all() and real["method"].str.contains("bootstrap").all():
        sure = ", within noise" if len(real) == 1 else "; no run differs from it beyond noise"
    best = most(real, "speedup")
    is_single = not interval_words(best) and str(best["method"] or "").startswith("one figure")
    return f"{head}. {capital(_best(real))}{' (one figure an arm)' if is_single else ''}{sure}."


def _best(real: pd.DataFrame, kind: str = "run") -> str:
    """The run with the highest speedup and its numbers."""
    best = most(real, "speedup")
    name = run_name(best, real)
    who = f"the best of {count(len(real), kind)} ({name})" if len(real) > 1 else f"the only {kind} ({name})"
    speeds = f"{number(best['tok_per_s'])} {speed_unit([best['basis']])} against {number(best['base_tok_per_s'])}"
    return f"{who} reached {speeds}, {times(best['speedup'])}{interval_words(best)}"


def short_passes(runs: pd.DataFrame) -> str | None:
    """Loads at which all slots are busy for less than `SHORT_S` in the median pass."""
    timed = runs[["max_concurrency", "pass_busy_s"]].dropna().explode("pass_busy_s")
    busy = timed["pass_busy_s"].astype("float64").groupby(timed["max_concurrency"]).median()
    short = busy[busy < SHORT_S]
    if short.empty:
        return None
    first, last = (f"{value:.1f}" for value in (short.min(), short.max()))
    seconds = first if first == last else f"{first} to {last}"
    return (
        f"Passes at {one_of(map(str, short.index))} at once are short (all slots busy for {seconds} s): a few requests "
        "decide the speed; raise workload.requests_per_slot."
    )


def interval_words(row: Row) -> str:
    """The interval of a speedup and what it is; nothing where there is none."""
    low, high, method = row["low"], row["high"], str(row["method"] or "")
    if low is None or high is None or low == high:
        return ""
    if "bootstrap" in method:
        return f" (95 % {span(low, high)})" if high <= UNBOUNDED * low else " (too few passes to bound it)"
    return (
        f" ({span(low, high)} by the client and the log)" if "log" in method else f" ({span(low, high)} in the source)"
    )


def bounded(speedups: pd.DataFrame) -> pd.DataFrame:
    """The same rows without the intervals that say nothing, which would fill a figure."""
    low, high = speedups["low"].astype("float64"), speedups["high"].astype("float64")
    method = speedups["method"] if "method" in speedups else pd.Series("bootstrap", index=speedups.index, dtype="str")
    resampled = method.str.contains("bootstrap").fillna(False).astype(bool)
    says_nothing = (resampled & (high > UNBOUNDED * low)) | ~np.isfinite(low) | ~np.isfinite(high)
    return speedups.assign(low=low.mask(says_nothing), high=high.mask(says_nothing))


def _at_concurrency(rows: pd.DataFrame, word: str) -> str:
    """Where there are several levels, or one that is not 1: `` at concurrency 1, 8 or 32``."""
    levels = [f"{level}" for level in sorted(rows["max_concurrency"].dropna().unique())]
    if not levels or (levels == ["1"] and word == "or"):
        return ""
    return f" at concurrency {f' {word} '.join(one_of(levels).rsplit(' and ', 1))}"


def _only_simulated(speedups: pd.DataFrame) -> str:
    forced = speedups[(speedups["origin"] == "simulated") & speedups["speedup"].notna()]
    if forced.empty:
        return "no sound speculative run has a speed beside a baseline's"
    known = forced.groupby(forced["max_concurrency"].astype("object").fillna(""))["speedup"]
    levels = one_of(_times_span(same) + (f" at concurrency {level}" if level != "" else "") for level, same in known)
    return f"the acceptance of every sound speculative run is simulated ({levels})"


def _times_span(values: pd.Series) -> str:
    first, last = times(values.min()), times(values.max())
    return first if first == last else f"{first} to {last}"


def by_concurrency(speedups: pd.DataFrame) -> str | None:
    """The best speedup at each concurrency, where more than one was measured, and the run where it is a gain."""
    known = real_runs(speedups).dropna(subset=["speedup", "max_concurrency"])
    best = [most(same, "speedup") for _, same in known.groupby("max_concurrency")]
    if len(best) < 2:
        return (
            f"Only concurrency {best[0]['max_concurrency']} was measured with a baseline beside it." if best else None
        )
    said = (f"{times(run['speedup'])} at {run['max_concurrency']}{_gaining(run, known)}" for run in best)
    return f"Best speedup by concurrency: {one_of(said)}."


def _gaining(run: Row, among: pd.DataFrame) -> str:
    """The name of a run that gains, its concurrency being said already, and what keeps the gain from counting."""
    if run["speedup"] < 1:
        return ""
    name = run_name(run, among).removesuffix(f", {run['max_concurrency']} at once")
    doubt = {"noise": ", within noise", "not decidable": ", not decided"}
    return f" ({name}{doubt.get(str(run['verdict']), '')})"


def undecided(speedups: pd.DataFrame, most_lines: int = 3) -> list[str]:
    """Which runs have no verdict, and why; runs of one reason in one sentence."""
    by_reason: dict[str, list[Row]] = {}
    for run in records(speedups[speedups["verdict"] == "not decidable"]):
        by_reason.setdefault(str(run["reason"] or "no reason stated"), []).append(run)
    shown = list(by_reason.items())[:most_lines]
    lines = [f"Not decided: {'; '.join(_names(same, speedups))} ({reason})." for reason, same in shown]
    more = len(by_reason) - len(shown)
    return [*lines, f"{count(more, 'more reason')} in the table of speedups."] if more > 0 else lines


def _names(rows: list[Row], among: pd.DataFrame, most_names: int = 4) -> list[str]:
    named = rows if len(rows) == most_names + 1 else rows[:most_names]
    more = len(rows) - len(named)
    return [*(run_name(run, among) for run in named), *([f"{more:,} more"] if more else [])]


def timing_noise(speedups: pd.DataFrame, runs: pd.DataFrame, drift: pd.DataFrame) -> str | None:
    """Why the speedup intervals are wide, where they are."""
    resampled = speedups["method"].str.contains("bootstrap").fillna(False).astype(bool)
    known = speedups[resampled].dropna(subset=["speedup", "low", "high"])
    width = float(((known["high"] - known["low"]) / known["speedup"]).median()) if len(known) else 0.0
    if not width > WIDE:
        return None
    reasons = []
    moved = drift["relative"].sub(1).abs().max()
    if moved > 0:
        reasons.append(f"passes of the same baseline differ by up to {moved:.0%}")
    alive = runs["servers_alive"].dropna()
    if len(alive) and alive.max() > 1:
        first, last = int(alive.min()), int(alive.max())
        reasons.append(f"{last if first == last else f'{first} to {last}'} servers were alive on the GPU")
    repeats = runs.loc[runs["role"] == "speculative", "repeats"].dropna()
    if len(repeats):
        usual = int(repeats.median())
        reasons.append(f"most configurations have {usual} pass{'' if usual == 1 else 'es'}")
    why = one_of(reasons) or "there are few passes"
    size = f"{width:.0%} of the speedup" if width < UNBOUNDED else "unbounded"
    return f"Timing intervals are wide, {size} in the median: {why}."
