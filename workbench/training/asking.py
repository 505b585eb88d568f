"""Prompts to a server and their answers into parts, many at once. A part is handed on when all of it is answered."""

from __future__ import annotations

import asyncio
import hashlib
import json
from asyncio import TaskGroup
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

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
class _Work:
    """What the slots share."""

    urls: Sequence[str]
    sampling: Sampling
    vocab_size: int
    timeout_s: float
    give_up: int
    jobs: Iterator[tuple[Part, Prompt]]
    on_part: OnPart
    on_answer: Callable[[Tally], None]
    tally: Tally
    open: dict[int, list[Sample | int]] = field(default_factory=dict)
    held: list[Callable[[], None]] = field(default_factory=list)
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
        When the server no longer answers. Parts that were handed on stay good.
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
    try:
        run_async(lambda: _run_slots(work, slots))
    except BaseExceptionGroup as group:
        raise _first(group) from group
    _hand_on(work)
    return work.tally


async def _run_slots(work: _Work, slots: int) -> None:
    async with open_session(work.timeout_s) as session, TaskGroup() as group:
        for slot in range(slots):
            group.create_task(_slot(session, work, slot))


async def _slot(session: aiohttp.ClientSession, work: _Work, slot: int) -> None:
    url, other = (work.urls[(slot + i) % len(work.urls)] for i in range(2))
    for part, prompt in work.jobs:
        sample, fault = await _ask(session, work, url, part, prompt)
        if fault is not None:
            await asyncio.sleep(RETRY_AFTER_S)
            work.tally.retried += 1
            sample, fault = await _ask(session, work, other, part, prompt)
        _take(work, part, prompt, sample, fault)


async def _ask(
    session: aiohttp.ClientSession, work: _Work, url: str, part: Part, prompt: Prompt
) -> tuple[Sample | None, str | None]:
    body = work.sampling.body(prompt, part.answer)
    answer, fault = await ask(session, url, body, timeout_s=work.timeout_s)
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


def _take(work: _Work, part: Part, prompt: Prompt, sample: Sample | None, fault: str | None) -> None:
    tally = work.tally
    if sample is None:
        work.last_fault = fault or ""
        work.failed_in_a_row += 1
        tally.failures[work.last_fault.partition(":")[0]] += 1
        if work.failed_in_a_row >= work.give_up:
            raise LaunchError(
                f"the server no longer answers: {work.failed_in_a_row} requests in a row failed ({work.last_fault})",
                where=", ".join(work.urls),
                next_step="look at its log, then run the same command again: finished parts are kept",
            )
    else:
        work.failed_in_a_row = 0
        tally.answers += 1
        tally.response_tokens += sample.response_tokens
    got = work.open.setdefault(part.number, [])
    got.append(prompt.index if sample is None else sample)
    if len(got) == len(part.prompts):
        del work.open[part.number]
        samples = sorted((one for one in got if isinstance(one, Sample)), key=lambda one: one.prompt)
        failed = sorted(one for one in got if not isinstance(one, Sample))
        work.held.append(partial(work.on_part, part, samples, failed))
    # While requests fail it is open whether a prompt or the server is to blame: what a server that dies has not
    # answered must be asked again.
    if work.failed_in_a_row == 0:
        _hand_on(work)
    work.on_answer(tally)


def _hand_on(work: _Work) -> None:
    for on_part in work.held:
        on_part()
    work.held.clear()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
