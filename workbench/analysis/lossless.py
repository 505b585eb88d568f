"""Whether greedy output under speculation is the plain one, token by token where the tokens were kept.

What the engine changes by itself is told by the control: plain decoding against plain decoding. In bf16 and fp16 a
verify step rounds otherwise than a plain step, because it computes several tokens at once; where two tokens are almost
equally likely the other one may win, and from there on the texts are different ones. A fault in verification shows as
more differences than that, mostly early ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, group_ids, known, number, typed
from workbench.analysis.pairing import Pair, pairs

IDENTICAL = "identical"
AS_OFTEN = "differs as often as plain against plain"
NOT_LOSSLESS = "differs more often than the control"
NO_CONTROL = "differs; no control to compare with"
TOKENS, TEXTS = "tokens", "text hashes"
_CHANCE = 0.05  # below this probability a difference in shares is no accident

_LOSSLESS = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "baseline_run_id": "str",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "dtype": "str",
    "compared": "str",
    "num_prompts": "Int64",
    "num_same": "Int64",
    "share": "float64",
    "control_run_id": "str",
    "control_prompts": "Int64",
    "control_same": "Int64",
    "control_share": "float64",
    "first_prompt": "Int64",
    "first_position": "Int64",
    "verdict": "str",
    "reason": "str",
}
USED = ("campaign", "run_id", "ok", "prompt_index", "repeat", "output_ids", "text_hash")
"""The columns of the requests that are used here."""
_COPIED = ("campaign", "run_id", "label", "prompt_set", "max_concurrency", "dtype")


@dataclass(frozen=True, slots=True)
class _Pass:
    """The answers of one pass of a run, by prompt: tokens where every answer has them, and hashes of the texts."""

    run_id: str
    tokens: Mapping[int, Sequence[int]] | None
    texts: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Compared:
    """Prompts in both passes, how many have the same answer, and the earliest divergence (prompt, position)."""

    prompts: int
    same: int
    first_prompt: int | None = None
    first_position: int | None = None


def losslessness_df(requests: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Share of prompts whose answer equals the baseline's, beside the same share of two plain passes (the control).

    The first pass of the run is compared with the first pass of the first baseline, and so is the control: a pass of
    the baseline that was measured again, else the second pass of the same one.

    Returns
    -------
    DataFrame
        ``compared`` says what was: tokens, or text hashes where a run kept no tokens. ``first_prompt`` and
        ``first_position`` (a token of the answer, from 0; only for tokens) are the earliest divergence. ``verdict`` is
        one of the sentences of this module, ``reason`` says why there is none or no control.
    """
    judged = [pair for pair in pairs(runs) if pair.baselines]
    return as_losslessness(lossless_rows(judged, requests))


def as_losslessness(rows: Iterable[Row]) -> pd.DataFrame:
    """The table of `losslessness_df` from the rows of pairs."""
    return typed(rows, _LOSSLESS)


def lossless_rows(judged: Sequence[Pair], requests: pd.DataFrame) -> list[Row]:
    """A row for each pair that has a baseline."""
    answers = _answers(requests, compared_runs(judged))
    return [_lossless(pair, answers) for pair in judged]


def told_apart(pair: Pair) -> tuple[object, ...]:
    """What a pair's row depends on besides the answers."""
    names = (*_COPIED, "temperature", "simulated_accept_length", "origin")
    return (*(pair.run[name] for name in names), *(base["run_id"] for base in pair.baselines))


def compared_runs(judged: Sequence[Pair]) -> set[tuple[str, str]]:
    """The runs whose answers are compared, as (campaign, run_id)."""
    told = [pair for pair in judged if _incomparable(pair.run, speculative=True, plain=True) is None]
    return {(run["campaign"], run["run_id"]) for pair in told for run in (pair.run, *pair.baselines)}


def _answers(requests: pd.DataFrame, compared: Set[tuple[str, str]]) -> dict[tuple[str, str], list[_Pass]]:
    """The first two passes of the runs that are compared, in order."""
    ids, keys = group_ids(requests, ["campaign", "run_id"])
    named = list(zip(keys["campaign"], keys["run_id"], strict=True))
    wanted = np.array([name in compared for name in named], dtype=bool)
    finished = requests["ok"].fillna(False).to_numpy(dtype=bool) & requests["prompt_index"].notna().to_numpy()
    used = np.flatnonzero(finished & wanted[ids]) if len(keys) else np.arange(0)
    if not len(used):
        return {}
    repeat = requests["repeat"].to_numpy(dtype=np.float64, na_value=np.nan)[used]
    order = np.lexsort((repeat, ids[used]))
    used, repeat = used[order], repeat[order]
    kept = requests[["prompt_index", "output_ids", "text_hash"]].iloc[used]
    columns = [kept[name].astype(object).where(kept[name].notna(), None).tolist() for name in kept.columns]
    begins = np.flatnonzero(
        np.diff(ids[used], prepend=-1) | np.diff(np.nan_to_num(repeat, nan=-1), prepend=-2).astype(bool)
    )
    answers: dict[tuple[str, str], list[_Pass]] = {}
    for begin, end in zip(begins, [*begins[1:], len(used)], strict=True):
        name = named[ids[used[begin]]]
        passes = answers.setdefault(name, [])
        if len(passes) < 2 and (found := _pass(name[1], *(column[begin:end] for column in columns))) is not None:
            passes.append(found)
    return answers


def _pass(run_id: str, prompts: Sequence[int], ids: Sequence[object], hashes: Sequence[object]) -> _Pass | None:
    """One pass; of a prompt that was answered twice the first answer."""
    first = {prompt: place for place, prompt in reversed([*enumerate(prompts)])}
    tokens = {prompt: ids[place] for prompt, place in first.items() if ids[place] is not None}
    texts = {prompt: hashes[place] for prompt, place in first.items() if hashes[place] is not None}
    if not tokens and not texts:
        return None
    return _Pass(run_id, tokens if len(tokens) == len(first) else None, texts)  # type: ignore[arg-type]


def _lossless(pair: Pair, answers: Mapping[tuple[str, str], list[_Pass]]) -> Row:
    run = pair.run
    speculative = answers.get((run["campaign"], run["run_id"]), [])
    plain = [answers.get((base["campaign"], base["run_id"]), []) for base in pair.baselines]
    plain = [passes for passes in plain if passes]
    row: Row = {**{name: run[name] for name in _COPIED}, "baseline_run_id": pair.baseline_run_id}
    problem = _incomparable(run, speculative=bool(speculative), plain=bool(plain))
    if problem:
        return {**row, "reason": problem}
    first = plain[0][0]
    again = plain[1][0] if len(plain) > 1 else plain[0][1] if len(plain[0]) > 1 else None
    by_tokens = all(each is None or each.tokens is not None for each in (speculative[0], first, again))
    found = _compare(first, speculative[0], by_tokens=by_tokens)
    if not found.prompts:
        return {**row, "reason": "no prompt was answered in both arms"}
    control = None if again is None else _compare(first, again, by_tokens=by_tokens)
    row |= {
        "baseline_run_id": first.run_id,
        "compared": TOKENS if by_tokens else TEXTS,
        "num_prompts": found.prompts,
        "num_same": found.same,
        "share": found.same / found.prompts,
        "first_prompt": found.first_prompt,
        "first_position": found.first_position,
        "verdict": _verdict(found, control),
    }
    if again is None or control is None or not control.prompts:
        return {**row, "reason": "no control: the baseline was measured once"}
    shares = {"control_prompts": control.prompts, "control_same": control.same}
    return row | shares | {"control_run_id": again.run_id, "control_share": control.same / control.prompts}


def _incomparable(run: Row, *, speculative: bool, plain: bool) -> str | None:
    if (number(run["temperature"]) or 0) > 0:
        return f"sampled at temperature {run['temperature']:g}: texts need not be equal"
    if known(run["simulated_accept_length"]) or run["origin"] == "simulated":
        return "acceptance is simulated: the text means nothing"
    if not speculative:
        return "no texts of the run"
    return None if plain else "no texts of the baseline"


def _compare(plain: _Pass, other: _Pass, *, by_tokens: bool) -> _Compared:
    left: Mapping[int, object] = (plain.tokens or {}) if by_tokens else plain.texts
    right: Mapping[int, object] = (other.tokens or {}) if by_tokens else other.texts
    both = sorted(left.keys() & right.keys())
    differing = [prompt for prompt in both if left[prompt] != right[prompt]]
    if not differing:
        return _Compared(len(both), len(both))
    same = len(both) - len(differing)
    if not by_tokens or plain.tokens is None or other.tokens is None:
        return _Compared(len(both), same, differing[0])
    places = {prompt: _divergence(plain.tokens[prompt], other.tokens[prompt]) for prompt in differing}
    first = min(differing, key=lambda prompt: places[prompt])
    return _Compared(len(both), same, first, places[first])


def _divergence(left: Sequence[int], right: Sequence[int]) -> int:
    """The first place where two answers differ; the end of the shorter one where one goes on."""
    return next(place for place, (one, other) in enumerate(zip_longest(left, right)) if one != other)


def _verdict(found: _Compared, control: _Compared | None) -> str:
    if found.same == found.prompts:
        return IDENTICAL
    if control is None or not control.prompts:
        return NO_CONTROL
    if control.same == control.prompts:
        return NOT_LOSSLESS
    return NOT_LOSSLESS if _chance_of_more(found, control) < _CHANCE else AS_OFTEN


def _chance_of_more(found: _Compared, control: _Compared) -> float:
    """Probability of at least as many differences in the run where both differ alike (Fisher's exact test)."""
    from scipy.stats import hypergeom  # takes longer to import than most pages to make

    differing = found.prompts - found.same
    among = differing + control.prompts - control.same
    return float(hypergeom.sf(differing - 1, found.prompts + control.prompts, among, found.prompts))
