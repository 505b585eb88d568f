"""What a verify cycle costs by its shape, and what a token takes of energy."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.frames import Row, records
from workbench.analysis.step_time import StepTimeFit
from workbench.analysis.views.texts import on_off, renamed, texts

_GIGABYTE = 1e9


def step_time_view(fit: StepTimeFit) -> pd.DataFrame:
    """The fits of the cycle time with 95 % intervals, one row a group; empty where no group has enough shapes.

    Groups of two or more shapes that are too few for a fit say so; those of a single shape are left out.
    """
    fits = fit.fits[fit.fits["num_shapes"] > 1] if len(fit.identified) else fit.identified
    rows = records(fits)
    shown = fits.assign(
        graphs=on_off(fits["cuda_graph"]),
        **{name: texts([_with_interval(row, name) for row in rows], fits.index) for name in ("a", "b", "c")},
    )
    names = {
        "drafter": "drafter",
        "prompt_set": "prompts",
        "baseline_group": "group",
        "graphs": "graphs",
        "max_concurrency": "concurrency",
        "a": "a (ms)",
        "b": "b (ms a step)",
        "c": "c (ms a draft token)",
        "residual_ms": "residual (ms)",
        "num_points": "runs",
        "num_shapes": "shapes",
        "num_simulated": "simulated",
        "form": "T_cycle",
    }
    if fits["reason"].notna().any():
        names["reason"] = "why not"
    # A form without one of the terms has no column for it.
    unused = [name for name in ("b", "c") if len(fits) and fits[name].isna().all()]
    return renamed(shown, {name: words for name, words in names.items() if name not in unused})


def _with_interval(row: Row, name: str) -> str | None:
    """``0.30 (0.10 to 0.50)``, the 95 % interval behind the value."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    # With spaces that do not break: the interval stays on one line in a narrow column.
    return None if value is None else f"{value:.3g} ({low:.3g}\u00a0to\u00a0{high:.3g})"


def experts_view(found: pd.DataFrame) -> pd.DataFrame:
    """Experts that the tokens of a verify pass reach beside the time of the cycle, in order of load and tokens."""
    if found.empty:
        return found
    order = ["max_concurrency", "tokens", "num_steps", "eagle_topk"]
    shown = found.sort_values(order).assign(share=texts([f"{x:.0%}" for x in found["experts_share"]], found.index))
    names = {
        "label": "run",
        "max_concurrency": "concurrency",
        "num_draft_tokens": "draft tokens",
        "num_steps": "steps",
        "tokens": "tokens a pass",
        "experts": "experts reached, expected",
        "share": "of all",
        "t_cycle_ms": "verify cycle (ms)",
    }
    return renamed(shown, names)


def experts_words(found: pd.DataFrame) -> str:
    """What a draft token costs between shapes that differ in draft tokens alone; empty without such shapes."""
    if found.empty:
        return ""
    said = []
    for (load, steps, topk), same in found.groupby(["max_concurrency", "num_steps", "eagle_topk"]):
        first, last = (same.loc[same["num_draft_tokens"].eq(n)].iloc[0] for n in _ends(same["num_draft_tokens"]))
        more = int(last["num_draft_tokens"] - first["num_draft_tokens"])
        if more == 0:
            continue
        grown = last["t_cycle_ms"] - first["t_cycle_ms"]
        said.append(
            f"At concurrency {load}, {steps} steps and topk {topk}, {last['num_draft_tokens']} draft tokens instead of "
            f"{first['num_draft_tokens']} make the cycle {last['t_cycle_ms']:.1f} ms instead of "
            f"{first['t_cycle_ms']:.1f}, {grown / more:.2f} ms a token, where {last['experts']:.0f} experts are "
            f"reached instead of {first['experts']:.0f}."
        )
    return " ".join(said)


def _ends(values: pd.Series) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def prefills_view(found: pd.DataFrame) -> pd.DataFrame:
    """What prefills take of each run's time and of its baseline's, and break-even with and without them."""
    shown = found.assign(
        **{
            name: texts([f"{share:.0%}" for share in found[name]], found.index)
            for name in ("prefill_share", "base_prefill_share")
        }
    )
    names = {
        "label": "run",
        "max_concurrency": "concurrency",
        "prefill_share": "prefills take",
        "base_prefill_share": "of the baseline's time",
        "prefill_ms": "a prefill (ms)",
        "clean_step_ms": "cycle between (ms)",
        "base_clean_step_ms": "plain step between (ms)",
        "break_even": "break-even",
        "clean_break_even": "break-even between",
    }
    return renamed(shown, names)


def energy_view(runs: pd.DataFrame) -> pd.DataFrame:
    """Energy a token beside speed, power, clock and memory, of the runs whose GPUs were sampled."""
    known = runs[runs["energy_j_per_tok"].notna() | runs["gpu_peak_memory_bytes"].notna()]
    shown = known.assign(
        memory=known["gpu_peak_memory_bytes"] / _GIGABYTE,
    )
    names = {
        "label": "run",
        "max_concurrency": "concurrency",
        "output_tok_per_s": "output tok/s",
        "decode_tok_per_s": "decode tok/s",
        "energy_j_per_tok": "energy (J/tok)",
        "gpu_power_w": "mean power (W)",
        "gpu_sm_clock_mhz": "mean clock (MHz)",
        "memory": "peak memory (GB)",
    }
    return renamed(shown, names)
