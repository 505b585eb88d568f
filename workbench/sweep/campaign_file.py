"""A campaign file as it is written: its keys and what they may hold."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from workbench.prompts import run_name
from workbench.sglang_rules.flags import flag_key
from workbench.spec import (
    SECRET_FLAGS,
    Drafter,
    Frozen,
    Name,
    Scalar,
    ServerConfig,
    Target,
    Workload,
    is_secret_variable,
)


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


_SOME = Field(min_length=1)
Steps = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], BeforeValidator(_listed), _SOME]
DraftTokens = Annotated[tuple[Annotated[int, Field(ge=1, le=1024)] | None, ...], BeforeValidator(_listed), _SOME]
Switch = Annotated[tuple[bool | None, ...], BeforeValidator(_listed), _SOME]
Lengths = Annotated[tuple[Annotated[float, Field(ge=1)] | None, ...], BeforeValidator(_listed), _SOME]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Flags = dict[str, Annotated[tuple[Scalar, ...], BeforeValidator(_listed), _SOME]]
Env = dict[str, Annotated[tuple[str, ...], BeforeValidator(_listed), _SOME]]
Levels = Annotated[tuple[Annotated[int, Field(ge=1, le=100_000)], ...], BeforeValidator(_listed)]
Concurrencies = Annotated[Levels, _SOME]
SetName = Annotated[str, Field(min_length=1, max_length=4096)]
NumPrompts = Annotated[int, Field(ge=1, le=1_000_000)]
_FLAG = re.compile(r"-{0,2}[A-Za-z0-9][\w.-]*")
_ASSIGNED = re.compile(r"(?<![\w.-])([\w.-]+)=")
UNNAMED = "to-be-named"
"""Id of a run until `named` makes it from the content."""


class SweepBlock(Frozen):
    """One product of settings. A single value counts as a list of one."""

    drafter: Names = ()
    speculative_algorithm: Annotated[Names, _SOME] = ("EAGLE3",)
    speculative_num_steps: Steps
    speculative_eagle_topk: Steps = (1,)
    speculative_num_draft_tokens: DraftTokens = (None,)
    simulated_accept_length: Lengths = (None,)
    cuda_graph: Switch = (None,)
    flags: Flags = Field(default_factory=dict)
    env: Env = Field(default_factory=dict)
    max_concurrency: Concurrencies | None = None
    note: str | None = None


class CampaignWorkload(Frozen):
    """What every run sends: ``num_prompts`` requests, or ``requests_per_slot`` for each of its slots when that is more.

    A full window needs several requests a slot: with as many requests as slots the first that ends ends it. Prompts
    come round again when the set has fewer. ``prompt_set`` is a shipped set's name or the path of a JSONL file.
    ``more_prompt_sets`` are others with their ``num_prompts``; every load is measured with each set, on one start.
    """

    prompt_set: SetName
    num_prompts: NumPrompts
    more_prompt_sets: dict[SetName, NumPrompts] = Field(default_factory=dict)
    requests_per_slot: int | None = Field(default=None, ge=1, le=10_000)
    temperature: float = Field(default=0.0, ge=0)
    max_new_tokens: int = Field(ge=1, le=1_000_000)
    ignore_eos: bool = False

    @property
    def prompt_sets(self) -> dict[str, int]:
        """All sets with the number of prompts that are taken of each."""
        return {self.prompt_set: self.num_prompts} | self.more_prompt_sets

    def at(self, concurrency: int, prompt_set: str | None = None) -> Workload:
        """The load of a run with ``concurrency`` slots, by default with the first prompt set."""
        name = prompt_set or self.prompt_set
        shared = self.model_dump(exclude={"prompt_set", "num_prompts", "more_prompt_sets", "requests_per_slot"})
        count = max(self.prompt_sets[name], (self.requests_per_slot or 0) * concurrency)
        return Workload(**shared, prompt_set=run_name(name), num_prompts=count, max_concurrency=concurrency)


class CampaignSpec(Frozen):
    """A campaign file. ``launch_prefix`` stands before the server's command line (docker run, srun, ssh).

    ``drafters_from`` is a folder of training folders: each finished drafter in it counts as one of ``drafters``, called
    like its folder, and what a drafter does not state is taken from its training folder. Blocks name drafters, also by
    patterns (``n500-*``).
    ``expected_tok_per_s`` (one stream, for the estimate of time only) and ``price_per_gpu_hour`` may be left out.
    ``baseline_max_concurrency`` are loads of the baseline beside those of the candidates. ``only`` are patterns of
    server names (``baseline*``): the other starts are left for another time. ``request_timeout_s`` limits one request,
    ``ready_timeout_s`` a start (by default 300 s for the embedded engine, an hour for SGLang).

    ``places`` starts are measured side by side, each with GPUs and CPUs of its own. Baselines never are, nor those
    that the patterns of ``alone`` name (finalists): neighbours can only slow a start down, so a candidate beside
    others never looks faster against its baseline than it is. With ``interference`` one start is measured both ways.
    """

    name: Name
    title: str
    question: str | None = None
    machine: str = "not stated"
    engine: Literal["sglang", "reference"] = "sglang"
    sglang_version: str | None = None
    target: Target
    drafters: tuple[Drafter, ...] = ()
    drafters_from: str | None = None
    workload: CampaignWorkload
    max_concurrency: Concurrencies = (1,)
    repeats: int = Field(default=1, ge=1, le=1000)
    baseline_again: bool = True
    baseline_max_concurrency: Levels = ()
    only: Names = ()
    places: int = Field(default=1, ge=1, le=256)
    alone: Names = ()
    interference: bool = False
    server: ServerConfig = ServerConfig()
    sweep: tuple[SweepBlock, ...] = Field(min_length=1)
    launch_prefix: tuple[str, ...] = ()
    request_timeout_s: float = Field(default=600.0, gt=0)
    ready_timeout_s: float | None = Field(default=None, gt=0)
    expected_tok_per_s: float | None = Field(default=None, gt=0)
    expected_start_s: float = Field(default=60.0, gt=0)
    price_per_gpu_hour: float | None = Field(default=None, ge=0)
    notes: tuple[str, ...] = ()

    def settings_for(self, engine: str | None) -> list[str]:
        """Settings for another engine than the file's; none where it is the same or ``None``.

        It makes another campaign: its speeds must not be compared with those of the usual one.
        """
        return [] if engine in (None, self.engine) else [f"engine={engine}", f"name={self.name}-{engine}"]

    @model_validator(mode="after")
    def _can_be_found_again(self) -> Self:
        if self.name.startswith(("_", ".")):
            raise ValueError(f"name: {self.name!r} begins with {self.name[0]!r}, and such folders are not read")
        return self

    @model_validator(mode="after")
    def _has_neighbours(self) -> Self:
        if self.interference and self.places == 1:
            raise ValueError("interference: there are no neighbours to interfere; set places to 2 or more")
        return self

    @model_validator(mode="after")
    def _can_be_handed_over(self) -> Self:
        """Arguments and variables of a program end at a NUL, and the name of a variable at the first ``=``."""
        for path in _with_nul(self.model_dump()):
            raise ValueError(f"{'.'.join(path)} holds the character NUL, which no program can be given")
        for name in self._flag_names:
            if not _FLAG.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a flag")
        for name in self._variables:
            if not name or "=" in name:
                raise ValueError(f"{name!r} is no name of a variable")
        return self

    @property
    def _flag_names(self) -> list[str]:
        return [*self.server.flags, *(name for block in self.sweep for name in block.flags)]

    @property
    def _variables(self) -> list[str]:
        return [*self.server.env, *(name for block in self.sweep for name in block.env)]

    @model_validator(mode="after")
    def _no_secrets(self) -> Self:
        secret = [name for name in self._flag_names if flag_key(name) in SECRET_FLAGS]
        secret += [name for name in self._variables if is_secret_variable(name)]
        secret += [name for name, _ in secret_arguments(self.launch_prefix)]
        if secret:
            raise ValueError(
                f"{secret[0]} is a secret, and settings are written down with every run: leave a server key out, "
                "and set a variable in the shell that starts this, from where the server inherits it"
            )
        return self

    @model_validator(mode="after")
    def _known_drafters(self) -> Self:
        names = [drafter.name for drafter in self.drafters]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"drafters: two are called {twice[0]!r}")
        for number, block in enumerate(self.sweep if self.drafters_from is None else ()):
            for name in block.drafter:
                if not called(name, self.drafters):
                    near = difflib.get_close_matches(name, names, n=1)
                    raise ValueError(f"sweep.{number}.drafter: no drafter {name!r}{did_you_mean(near)}")
        return self


def _with_nul(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a text holds a NUL, names among them."""
    if isinstance(value, str) and "\0" in value:
        yield path
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _with_nul(str(name), (*path, repr(name)))
            yield from _with_nul(each, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _with_nul(each, (*path, str(number)))


def secret_arguments(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and value of what a command line gives away; a name alone hands on what is set.

    That is ``NAME=VALUE`` anywhere in an argument (``--env=NAME=VALUE``, a line for a shell) and ``--token VALUE``,
    also inside of one. The value of an assignment is all that follows it in its argument.
    """
    for before, argument in zip(("", *argv), argv, strict=False):
        for found in _ASSIGNED.finditer(argument):
            if is_secret_variable(found[1]) or _is_secret_flag(found[1]):
                yield found[1], argument[found.end() :]
        words = argument.split()
        for flag, value in ((before, argument), *itertools.pairwise(words)):
            if _is_secret_flag(flag):
                yield flag, value


def _is_secret_flag(word: str) -> bool:
    return word.startswith("--") and flag_key(word) in SECRET_FLAGS


def called(name: str, drafters: Sequence[Drafter]) -> list[Drafter]:
    """The drafter of a name, or those that a pattern fits."""
    exact = [drafter for drafter in drafters if drafter.name == name]
    return exact or [drafter for drafter in drafters if fnmatch.fnmatchcase(drafter.name, name)]


def did_you_mean(near: Sequence[str]) -> str:
    return f"; did you mean {near[0]!r}?" if near else ""
