"""What `workbench tune` found, as tables: ``tune.json`` of a campaign folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pandas as pd
from pydantic import Field

from workbench.errors import Problem
from workbench.paths import TUNED
from workbench.table.side_checks import File, read_json

DECIDED: Final = "decided"
NOT_CONFIRMED: Final = "not confirmed"
UNDECIDED: Final = "undecided"
_Load = Annotated[int, Field(ge=1, lt=2**31)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Speed = Annotated[float, Field(ge=0, lt=1e12)]
_Off = Annotated[float, Field(ge=-1, lt=1e6)]
_Regret = Annotated[float, Field(gt=-1e6, le=1)]
_Minutes = Annotated[float, Field(ge=0, lt=1e12)]


class BestAt(File):
    """The answer at one load; ``rivals`` may still be faster. ``tok_per_s`` is weighed, see `Ranked`."""

    load: _Load
    config: str
    tok_per_s: _Speed
    low: _Speed | None = None
    high: _Speed | None = None
    measured_tok_per_s: _Speed | None = None
    speedup: _Speed | None = None
    state: Literal["decided", "not confirmed", "undecided"]
    rivals: tuple[str, ...] = ()


class OneForAll(File):
    """What serves every load with the least loss: its regret, as a share of the best speed, at each."""

    config: str
    regret: Mapping[_Load, _Regret]


class Spent(File):
    """GPU minutes of the search, and what the whole grid would have taken by the mean times so far."""

    spent: _Minutes
    full_grid_estimate: _Minutes | None = None
    starts: _Count


class Ranked(File):
    """A configuration at a load; ``ratio`` is its speed over the leader's.

    ``tok_per_s`` weighs what was measured with what the other shapes say of it.
    """

    max_concurrency: _Load
    rank: _Count | None = None
    config: str
    basis: str
    tok_per_s: _Speed | None = None
    low: _Speed | None = None
    high: _Speed | None = None
    measured_tok_per_s: _Speed | None = None
    speedup: _Speed | None = None
    ratio: _Speed | None = None
    ratio_low: _Speed | None = None
    ratio_high: _Speed | None = None
    accept_length: _Speed | None = None
    visits: _Count
    standing: str


class Residual(File):
    """A measured configuration, predicted as if it had not been; ``error`` is predicted over measured, minus one."""

    config: str
    max_concurrency: _Load
    measured_tok_per_s: _Speed
    tok_per_s: _Speed | None = None
    tok_per_s_low: _Speed | None = None
    tok_per_s_high: _Speed | None = None
    error: _Off | None = None
    inside: bool | None = None


class LeftOut(File):
    config: str
    load: _Load | None = None
    why: str


class _Answer(File):
    campaign: str
    best: tuple[BestAt, ...]
    one_for_all: OneForAll | None = None
    gpu_minutes: Spent
    next: Mapping[str, str] | None = None
    commands: Mapping[str, str] = Field(default_factory=dict)
    adaptive: Mapping[str, Any] | None = None
    left_out: tuple[LeftOut, ...] = ()
    ranking: tuple[Ranked, ...] = ()
    residuals: tuple[Residual, ...] = ()


@dataclass(frozen=True, slots=True)
class Tuned:
    """The answer of a search. ``ranking`` has the columns of `Ranked`, ``residuals`` those of `Residual`.

    ``commands`` are the command lines of the leaders, by configuration; ``next_start`` says what a search that goes on
    would measure, and why. ``adaptive_command`` serves all loads by one server that changes its steps (not measured).
    """

    best: tuple[BestAt, ...]
    one_for_all: OneForAll | None
    minutes: Spent
    next_start: tuple[str, str] | None
    commands: Mapping[str, str]
    adaptive_command: str | None
    left_out: tuple[LeftOut, ...]
    ranking: pd.DataFrame
    residuals: pd.DataFrame


def read_tuned(campaign: Path) -> tuple[Tuned | None, list[Problem]]:
    """What a search in a campaign folder found, if there was one, and why it cannot be used."""
    problems: list[Problem] = []
    found = read_json(campaign / TUNED, campaign, _Answer, problems)
    return None if found is None else _tables(found), problems


def _tables(found: _Answer) -> Tuned:
    said = found.next or {}
    command = (found.adaptive or {}).get("command")
    return Tuned(
        best=found.best,
        one_for_all=found.one_for_all,
        minutes=found.gpu_minutes,
        next_start=(said["config"], said.get("why", "")) if "config" in said else None,
        commands=found.commands,
        adaptive_command=command if isinstance(command, str) else None,
        left_out=found.left_out,
        ranking=_table(found.ranking, Ranked),
        residuals=_table(found.residuals, Residual),
    )


_KINDS = {"config": "str", "basis": "str", "standing": "str", "inside": "boolean"}
_WHOLE = frozenset({"max_concurrency", "rank", "visits"})


def _table(rows: Iterable[File], kind: type[File]) -> pd.DataFrame:
    held = list(rows)
    return pd.DataFrame(
        {
            name: pd.Series(
                [getattr(row, name) for row in held],
                dtype=_KINDS.get(name, "Int64" if name in _WHOLE else "float64"),
            )
            for name in kind.model_fields
        }
    )
