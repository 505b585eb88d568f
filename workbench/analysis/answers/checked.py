"""What the checks beside the speeds say: is the output the plain one, and what does a step cost."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import all_on_cpu, real_runs
from workbench.analysis.frames import Row, most, records
from workbench.analysis.lossless import AS_OFTEN, IDENTICAL, NOT_LOSSLESS, TOKENS
from workbench.analysis.step_time import StepTimeFit
from workbench.analysis.wording import count, few, number, one_of

_FLOAT32 = "float32"


def lossless(found: pd.DataFrame) -> list[str]:
    """Whether greedy output is the plain one, from `losslessness_df`: one sentence a verdict, the worst first."""
    judged = found.dropna(subset=["verdict"])
    said = []
    for verdict in (NOT_LOSSLESS, AS_OFTEN, IDENTICAL):
        same = judged[judged["verdict"] == verdict]
        if len(same):
            said.append(_lossless(verdict, same))
    rest = judged[~judged["verdict"].isin([NOT_LOSSLESS, AS_OFTEN, IDENTICAL])]
    if len(rest):
        said.append(_lossless("", rest))
    return said


def _lossless(verdict: str, same: pd.DataFrame) -> str:
    by_token = same[same["compared"] == TOKENS]
    same = by_token if len(by_token) else same  # stronger evidence than hashes of texts
    names = few(dict.fromkeys(map(str, same["label"])), 3)
    how = "token by token" if len(by_token) else "by text hash, as no tokens were kept"
    if verdict == IDENTICAL:
        answers = f"{same['num_same'].sum()} of {same['num_prompts'].sum()}"
        return f"Greedy output is the plain one: {answers} answers of {names} are identical {how}{_control(same)}."
    worst = most(same.assign(differing=1 - same["share"]), "differing")
    shares = f"{worst['num_same']} of {worst['num_prompts']} answers of {worst['label']} equal the baseline's {how}"
    control = _control(same[same["run_id"] == worst["run_id"]])
    first = _first(worst)
    if verdict == NOT_LOSSLESS:
        how_often = "Greedy output differs from the plain one more often than the control"
        return f"{how_often}: {shares}{control}{first}. {_why(worst)}"
    if verdict == AS_OFTEN:
        return f"Output differs as often as plain decoding does from itself: {shares}{control}{first}."
    return f"Output differs and there is no control: {shares}{first}. Measure the baseline again. {_why(worst)}"


def _control(same: pd.DataFrame) -> str:
    known = same.dropna(subset=["control_prompts"])
    if known.empty:
        return ""
    worst = records(known.sort_values("control_share").head(1))[0]
    return f" (control, plain against plain: {worst['control_same']} of {worst['control_prompts']})"


def _first(row: Row) -> str:
    if row["first_prompt"] is None:
        return ""
    where = "" if row["first_position"] is None else f" at token {row['first_position']} of the answer"
    return f"; the first divergence is in prompt {row['first_prompt']}{where}"


def _why(row: Row) -> str:
    """What to make of differences that plain decoding does not have."""
    if row["dtype"] == _FLOAT32:
        return "In float32 near-ties are rare: suspect the verification before the rounding."
    form = row["dtype"] or "16-bit numbers"
    return (
        f"In {form} a verify step rounds otherwise than a plain one, so near-ties can break differently and the rest "
        "of the answer follows: look whether the two tokens at the first divergence were almost equally likely before "
        "suspecting the verification."
    )


def step_time(fit: StepTimeFit, by_length: pd.DataFrame) -> list[str]:
    """What a verify cycle costs, and whether that depends on what it accepts."""
    groups = records(fit.identified.sort_values("max_concurrency", kind="stable"))
    said = [_fitted(groups[0])] if groups else []
    if len(groups) > 1:
        said[0] += f" Fits of {count(len(groups), 'group')} are in the table."
    if len(by_length):
        said.append(_by_length(by_length))
    return said


def _fitted(row: Row) -> str:
    terms = [f"{number(row['a'])} ms"]
    for name, word in (("b", "step"), ("c", "draft token")):
        if row[name] is not None:
            sign = "+" if row[name] >= 0 else "-"
            ends = f"95 % {row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f}"
            terms.append(f"{sign} {abs(row[name]):.3f} ms a {word} ({ends})")
    at = "" if row["max_concurrency"] is None else f" at concurrency {row['max_concurrency']}"
    forced = f", {row['num_simulated']} with simulated acceptance" if row["num_simulated"] else ""
    size = f"n = {count(row['num_points'], 'run')} of {count(row['num_shapes'], 'shape')}{forced}"
    said = f"A verify cycle{at} takes {' '.join(terms)} ({size}; residuals of {row['residual_ms']:.3f} ms)."
    return " ".join([said, *_slopes(row)])


def _slopes(row: Row) -> list[str]:
    """What the slopes cannot be read as: a cost below 0, or one that is not there beyond doubt."""
    slopes = [(name, word) for name, word in (("b", "steps"), ("c", "draft tokens")) if row[name] is not None]
    falling = [word for name, word in slopes if row[f"{name}_high"] < 0]
    if falling:
        which = " and ".join(falling)
        return [f"It falls with {which}, which a cost cannot: drift between servers, or confounding."]
    if all(row[f"{name}_low"] <= 0 <= row[f"{name}_high"] for name, _ in slopes):
        return [f"It does not visibly depend on {' or '.join(word for _, word in slopes)}."]
    return []


def _by_length(found: pd.DataFrame) -> str:
    row = most(found, "spread")
    shape = f"{row['num_steps']} steps and {row['num_draft_tokens']} draft tokens"
    at = "" if row["max_concurrency"] is None else f" at concurrency {row['max_concurrency']}"
    what = f"from {row['length_low']:g} to {row['length_high']:g} simulated tokens a step"
    verdicts = set(found["verdict"])
    if verdicts == {"does not depend on it"}:
        shapes = "" if len(found) == 1 else f", the most of {count(len(found), 'such group')}"
        return (
            f"The cycle time does not depend on what is accepted: {what} it lies within {row['spread']:.1%} "
            f"({shape}{at}{shapes})."
        )
    return (
        f"Whether the cycle time depends on what is accepted: {what} it differs by {row['spread']:.1%} ({shape}{at}; "
        f"{one_of(sorted(verdicts))})."
    )


def on_cpu(runs: pd.DataFrame) -> str | None:
    """What a campaign without a GPU cannot tell."""
    if not all_on_cpu(runs):
        return None
    return (
        "Every run was served by a CPU, where checking several tokens costs clearly more than making one. On a GPU it "
        "hardly does, so whether speculation pays there is not told here; accept lengths carry over."
    )


def serve_on_a_gpu(runs: pd.DataFrame) -> str | None:
    """The next action of a campaign that has no GPU in it."""
    if not all_on_cpu(runs):
        return None
    return (
        "Serve the same pair with SGLang on a GPU before deciding anything (`workbench run h200_smollm2` is such a "
        "campaign): the time of a verify cycle there decides, and the accept length carries over."
    )


def energy(runs: pd.DataFrame, speedups: pd.DataFrame) -> str | None:
    """Energy a token of the fastest measured run whose baseline's is known too."""
    joules = {(row["campaign"], row["run_id"]): row["energy_j_per_tok"] for row in records(runs)}
    pairs = real_runs(speedups).dropna(subset=["speedup", "baseline_run_id"])
    both = pairs[
        [
            None not in (joules.get((campaign, run)), joules.get((campaign, base)))
            for campaign, run, base in zip(pairs["campaign"], pairs["run_id"], pairs["baseline_run_id"], strict=True)
        ]
    ]
    if both.empty:
        return None
    best = most(both, "speedup")
    own, base = (joules[best["campaign"], best[name]] for name in ("run_id", "baseline_run_id"))
    at = "" if best["max_concurrency"] is None else f" at concurrency {best['max_concurrency']}"
    return (
        f"A token takes {own:.2g} J of GPU energy with {best['label']}{at}, {base:.2g} J without speculation "
        f"({own / base:.2f}x)."
    )
