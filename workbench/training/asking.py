"""Prompts to a server and their answers into parts, many at once. A part is handed on when all of it is answered."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from asyncio import TaskGroup
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp
import numpy as np

from workbench.errors import LaunchError
from workbench.load.answer import Answer
from workbench.load.asking import ask, open_session
from workbench.load.wire import allow_sockets, run_async
from workbench.prompts import Prompt
from workbench.training.parts import Sample

RETRY_AFTER_S = 1.0
_GIVE_UP = 5
"""So many requests that failed twice in a row, or one in every slot where that is more, and the server is given up."""
_SEEDS = 1 << 31
_NOBODY = "no connection"
"""The kind of fault that tells of the server alone: whatever is asked then has to be asked again."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target answers. ``top_p`` and ``seed`` say nothing at temperature 0."""

    temperature: float
    top_p: float
    max_new_tokens: int
    seed: int

    def body(self, prompt: Prompt, answer: int) -> bytes:
        asked: dict[str, object] = {"temperature": self.temperature, "max_new_tokens": self.max_new_tokens}
        if self.temperature > 0:
            asked |= {"top_p": self.top_p, "sampling_seed": self.seed_of(prompt.index, answer)}
        return json.dumps({"input_ids": prompt.input_ids, "sampling_params": asked, "stream": False}).encode()

    def seed_of(self, prompt: int, answer: int) -> int:
        """A request's own seed: with one for all, several answers to a prompt would be the same."""
        return int.from_bytes(hashlib.sha256(f"{self.seed} {prompt} {answer}".encode()).digest()[:8]) % _SEEDS


@dataclass(frozen=True, slots=True)
class Part:
    """Prompts that are answered into one file."""

    number: int
    answer: int
    prompts: Sequence[Prompt]


@dataclass(slots=True)
class Tally:
    """What has come back so far; ``failures`` are requests that failed twice, by kind."""

    answers: int = 0
    response_tokens: int = 0
    retried: int = 0
    failures: Counter[str] = field(default_factory=Counter)


OnPart = Callable[[Part, Sequence[Sample], Sequence[int]], None]


@dataclass(slots=True)
class _Got:
    """What has come of a part: samples, when each of the other prompts failed, how many of them found no server."""

    part: Part
    samples: list[Sample] = field(default_factory=list)
    failed: dict[int, float] = field(default_factory=dict)
    unasked: int = 0

    @property
    def is_whole(self) -> bool:
        return len(self.samples) + len(self.failed) == len(self.part.prompts)

    def is_sure(self, alive_at: float) -> bool:
        return all(at < alive_at for at in self.failed.values())


@dataclass(slots=True)
class _Work:
    """What the slots share. ``alive_at`` is when the last request was sent that was answered."""

    urls: Sequence[str]
    sampling: Sampling
    vocab_size: int
    timeout_s: float
    give_up: int
    jobs: Iterator[tuple[Part, Prompt]]
    on_part: OnPart
    on_answer: Callable[[Tally], None]
    tally: Tally
    open: dict[int, _Got] = field(default_factory=dict)
    alive_at: float = -math.inf
    failed_in_a_row: int = 0
    last_fault: str = ""


def ask_all(
    urls: Sequence[str],
    parts: Sequence[Part],
    sampling: Sampling,
    *,
    vocab_size: int,
    concurrency: int,
    timeout_s: float,
    on_part: OnPart,
    on_answer: Callable[[Tally], None],
) -> Tally:
    """Answer all parts.

    Parameters
    ----------
    urls
        Servers that share the slots in turn; what one fails to answer, the next one is asked.
    concurrency
        Requests at once, of all servers together.
    on_part
        Takes the samples of a part, in the order of its prompts, and the prompts that got no answer.
    on_answer
        Called after each answer; must be quick.

    Raises
    ------
    LaunchError
        When the server no longer answers, or answered nothing, or was not there for some of the prompts. Parts that
        were handed on stay good.
    """
    allow_sockets(concurrency)
    work = _Work(
        urls=[url.rstrip("/") + "/generate" for url in urls],
        sampling=sampling,
        vocab_size=vocab_size,
        timeout_s=timeout_s,
        give_up=max(_GIVE_UP, concurrency),
        jobs=((part, prompt) for part in parts for prompt in part.prompts),
        on_part=on_part,
        on_answer=on_answer,
        tally=Tally(),
    )
    slots = min(concurrency, sum(len(part.prompts) for part in parts))
    run_async(lambda: _run_slots(work, slots))
    _refuse_gaps(work)
    _hand_on(work, list(work.open.values()))
    return work.tally


def _refuse_gaps(work: _Work) -> None:
    """At the end fewer requests are left than it takes to give a server up; what it did not answer is still open."""
    if unasked := sum(got.unasked for got in work.open.values()):
        raise _gone(work, f"no server was there for {unasked} prompts")
    left = sum(at >= work.alive_at for got in work.open.values() for at in got.failed.values())
    if left > 1 or (left and not work.tally.answers):
        raise _gone(work, f"the last {left} requests failed")


def _gone(work: _Work, what: str) -> LaunchError:
    return LaunchError(
        f"{what} ({work.last_fault})",
        where=", ".join(work.urls),
        next_step="look at its log, then run the same command again: finished parts are kept",
    )


async def _run_slots(work: _Work, slots: int) -> None:
    async with open_session(work.timeout_s) as session, TaskGroup() as group:
        for slot in range(slots):
            group.create_task(_slot(session, work, slot))


async def _slot(session: aiohttp.ClientSession, work: _Work, slot: int) -> None:
    url, other = (work.urls[(slot + i) % len(work.urls)] for i in range(2))
    for part, prompt in work.jobs:
        sent_at = time.monotonic()
        sample, fault = await _ask(session, work, url, part, prompt)
        if fault is not None:
            await asyncio.sleep(RETRY_AFTER_S)
            work.tally.retried += 1
            sent_at = time.monotonic()
            sample, fault = await _ask(session, work, other, part, prompt)
        got = work.open.setdefault(part.number, _Got(part))
        if sample is None:
            _failed(work, got, prompt, fault or "")
        else:
            _answered(work, got, sample, sent_at)
        work.on_answer(work.tally)


async def _ask(
    session: aiohttp.ClientSession, work: _Work, url: str, part: Part, prompt: Prompt
) -> tuple[Sample | None, str | None]:
    body = work.sampling.body(prompt, part.answer)
    most = work.sampling.max_new_tokens
    answer, fault = await ask(session, url, body, most_tokens=most, timeout_s=work.timeout_s)
    if answer is None:
        return None, fault
    ids = _ids(answer, work.vocab_size)
    if isinstance(ids, str):
        return None, f"not an answer: {ids}"
    prompt_ids = prompt.input_ids or ()
    whole = np.asarray([*prompt_ids, *ids], np.uint32)
    return Sample(whole, len(prompt_ids), prompt.index, part.answer, prompt.task), None


def _ids(answer: Answer, vocab_size: int) -> list[int] | str:
    """The answer's tokens, the one that closed it included; or what is wrong with them."""
    ids, reason = answer.output_ids, answer.meta.get("finish_reason")
    if ids is None:
        return "it has no output_ids"
    if not ids or len(ids) != answer.count("completion_tokens"):
        return f"{len(ids)} output_ids, completion_tokens {answer.count('completion_tokens')}"
    matched = reason.get("matched") if isinstance(reason, dict) else None
    if type(matched) is int and ids[-1] != matched:
        ids = [*ids, matched]
    if not 0 <= min(ids) <= max(ids) < vocab_size:
        return f"token {max(ids)}, the target's vocabulary has {vocab_size}"
    return ids


def _failed(work: _Work, got: _Got, prompt: Prompt, fault: str) -> None:
    work.last_fault = fault
    work.failed_in_a_row += 1
    work.tally.failures[fault.partition(":")[0]] += 1
    got.failed[prompt.index] = time.monotonic()
    got.unasked += fault.startswith(_NOBODY)
    if work.failed_in_a_row >= work.give_up:
        raise _gone(work, f"the server no longer answers: {work.failed_in_a_row} requests in a row failed")


def _answered(work: _Work, got: _Got, sample: Sample, sent_at: float) -> None:
    work.failed_in_a_row = 0
    work.tally.answers += 1
    work.tally.response_tokens += sample.response_tokens
    work.alive_at = max(work.alive_at, sent_at)
    got.samples.append(sample)
    # A prompt is to blame for its failure only if the server answered what it was sent later: what a server that dies
    # has not answered must be asked again.
    _hand_on(work, [each for each in work.open.values() if not each.unasked and each.is_sure(work.alive_at)])


def _hand_on(work: _Work, parts: Sequence[_Got]) -> None:
    for got in parts:
        if got.is_whole:
            del work.open[got.part.number]
            work.on_part(got.part, sorted(got.samples, key=lambda one: one.prompt), sorted(got.failed))
