"""Which baseline a speculative run is compared with, and the speeds of both arms on one basis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from workbench.analysis.frames import Row, in_time, known, number, records, same_where_known, speed_of
from workbench.analysis.passes import busy_passes

NOT_DECIDABLE = "not decidable"

# Most telling first: the first of them that no baseline shares names the problem.
_MUST_MATCH = (
    ("baseline_group", "in group {}"),
    ("prompt_set", "with the prompts {}"),
    ("max_concurrency", "at concurrency {}"),
)
_MAY_BE_UNKNOWN = ("ignore_eos", "temperature", "max_new_tokens")


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second; ``low`` and ``high`` equal ``value`` unless the source gives a range."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A speculative run and the baselines of the same load; ``problem`` says why there are none or no speeds.

    ``basis`` is "decode" or "output" and the same for both speeds. Several baselines give one pooled speed.
    """

    run: Row
    baselines: tuple[Row, ...]
    basis: str | None = None
    speed: Speed | None = None
    base: Speed | None = None
    problem: str | None = None

    @property
    def baseline_run_id(self) -> str | None:
        return str(self.baselines[0]["run_id"]) if self.baselines else None


def pair_baselines(runs: pd.DataFrame) -> pd.DataFrame:
    """The speculative runs with the baseline that each is compared with, and why there is none.

    A baseline shares campaign, group, prompt set and concurrency, and ``ignore_eos``, temperature and the limit of an
    answer where both are known, and its run succeeded. Where several do (measured before and after),
    ``baseline_run_id`` is the first in time and ``baseline_run_ids`` has all.
    """
    found = list(pairs(runs))
    paired = runs[runs["role"] == "speculative"].copy()
    paired["baseline_run_id"] = pd.Series([pair.baseline_run_id for pair in found], index=paired.index, dtype="str")
    ids = [[str(base["run_id"]) for base in pair.baselines] for pair in found]
    paired["baseline_run_ids"] = pd.Series(ids, index=paired.index, dtype="object")
    problems = [None if pair.baselines else pair.problem for pair in found]
    paired["pairing_problem"] = pd.Series(problems, index=paired.index, dtype="str")
    return paired


def pairs(runs: pd.DataFrame) -> Iterator[Pair]:
    """Every speculative run, in order, with its baselines and the speeds of both."""
    baselines: dict[object, list[Row]] = defaultdict(list)
    of_load: dict[object, list[Row]] = defaultdict(list)
    speculative: list[Row] = []
    for run in records(runs):
        if run["role"] == "speculative":
            speculative.append(run)
        else:
            baselines[run["campaign"]].append(run)
            of_load[_load(run)].append(run)
    for run in speculative:
        if not has_finished(run):
            yield Pair(run, (), problem=f"the run is {run['status']}: it is not judged")
            continue
        # Those of its load, without a look at thousands of others; all of them where it has to be said what is missing.
        candidates = of_load.get(_load(run)) or baselines[run["campaign"]]
        matching, problem = _matching(run, candidates)
        yield Pair(run, (), problem=problem) if problem else _with_speeds(run, matching)


def _load(run: Row) -> tuple[object, ...]:
    return tuple(run[name] for name in ("campaign", *(name for name, _ in _MUST_MATCH)))


def has_finished(run: Row) -> bool:
    """Whether a run counts: one that failed, was stopped or still goes on has figures of its good requests only."""
    return same_where_known(run["status"], "ok")


def _matching(run: Row, candidates: Sequence[Row]) -> tuple[list[Row], str | None]:
    """Baselines of the run's own load, or what is missing."""
    left = list(candidates)
    said = "no baseline"
    if not left:
        return [], f"{said} in the campaign"
    for name, words in _MUST_MATCH:
        if not known(run[name]):
            return [], f"{name} of the run is not stated, so no baseline can be matched"
        said += f" {words.format(run[name])}"
        left = [base for base in left if known(base[name]) and base[name] == run[name]]
        if not left:
            return [], said
    for name in _MAY_BE_UNKNOWN:
        left = [base for base in left if same_where_known(base[name], run[name])]
        if not left:
            return [], f"{said} and {name} {run[name]}"
    succeeded = [base for base in left if same_where_known(base["status"], "ok")]
    return in_time(succeeded), None if succeeded else f"{said}: {left[0]['run_id']} is {left[0]['status']}"


def _with_speeds(run: Row, baselines: Sequence[Row]) -> Pair:
    for basis in ("decode", "output"):
        speed = _speed(run, basis)
        bases = [(base, value) for base in baselines if (value := _speed(base, basis)) is not None]
        if speed is not None and bases:
            return Pair(run, tuple(base for base, _ in bases), basis, speed, _pooled(bases, basis))
    return Pair(run, tuple(baselines), problem=_no_speed(run, baselines))


def _no_speed(run: Row, baselines: Sequence[Row]) -> str:
    if not any(_speed(run, basis) for basis in ("decode", "output")):
        return "no speed was measured"
    if not any(_speed(base, basis) for base in baselines for basis in ("decode", "output")):
        return "the baseline has no speed"
    return "one arm has only a decode speed, the other only an output speed"


def _speed(run: Row, basis: str) -> Speed | None:
    value = speed_of(run[f"{basis}_tok_per_s"])
    if value is None:
        return None
    if basis == "decode":
        return Speed(value, value, value)
    low, high = speed_of(run["output_tok_per_s_low"]), speed_of(run["output_tok_per_s_high"])
    return Speed(value, value if low is None else low, value if high is None else high)


def _pooled(bases: Sequence[tuple[Row, Speed]], basis: str) -> Speed:
    """All tokens over all time where every baseline states its tokens, else the mean.

    Of decode speeds, the tokens of the windows in which all slots are busy; one request at a time, those after the
    first of each answer.
    """
    low, high = min(speed.low for _, speed in bases), max(speed.high for _, speed in bases)
    decode, alone = basis == "decode", number(bases[0][0]["max_concurrency"]) == 1
    tokens = [_tokens(base, first=not (decode and alone)) for base, _ in bases]
    passes = busy_passes([base for base, _ in bases]) if decode and not alone else None
    if len(bases) > 1 and passes is not None:
        value = passes.speed
    elif len(bases) == 1 or not all(tokens):
        value = sum(speed.value for _, speed in bases) / len(bases)
    else:
        seconds = sum(count / speed.value for count, (_, speed) in zip(tokens, bases, strict=True))
        value = sum(tokens) / seconds
    # Two baselines of one value each are two passes, not a range that a source states.
    return Speed(value, low, high) if len(bases) == 1 else Speed(value, value, value)


def _tokens(base: Row, *, first: bool) -> float:
    """Tokens of a baseline's answers, with the first of each or without; 0 where that is not known."""
    tokens, answers = number(base["completion_tokens"]) or 0.0, number(base["num_requests"])
    return tokens if first or answers is None else tokens - answers
