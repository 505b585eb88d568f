"""Drives prompts at a fixed concurrency and records every request.

A closed loop by design: a fixed number of slots, each of which sends its next request when it has the answer to the
last. A slow answer delays the slot's next request, so the latencies are those at this concurrency; they say nothing of
requests that arrive at a fixed rate (to read them so would be coordinated omission).
"""

from __future__ import annotations

import json
import time
from asyncio import TaskGroup
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice

import aiohttp

from workbench.errors import UsageError
from workbench.load.asking import ask, open_session
from workbench.load.records import NOT_SENT, LoadResult, RequestRecord, summarise
from workbench.load.wire import allow_sockets, run_async
from workbench.prompts import Prompt
from workbench.spec import Workload

# So many failures in a row, or one in every slot where that is more, and the server is given up.
_GIVE_UP = 5
_MOST_TOKENS = 1 << 20  # of an answer where no limit is asked for

OnRecord = Callable[[RequestRecord], None]


@dataclass(slots=True)
class _Drive:
    """What the slots of one load share."""

    url: str
    stream: bool
    most_tokens: int
    timeout_s: float
    token_ids: bool
    repeat: int
    give_up: int
    on_record: OnRecord | None
    queue: Iterator[tuple[int, int, bytes]]
    records: dict[int, RequestRecord] = field(default_factory=dict)
    failed_in_a_row: int = 0
    zero: float = 0.0

    def now(self) -> float:
        return time.perf_counter() - self.zero


def drive(
    url: str,
    prompts: Sequence[Prompt],
    workload: Workload,
    *,
    stream: bool = False,
    timeout_s: float = 600.0,
    return_token_ids: bool = False,
    repeat: int = 0,
    on_record: OnRecord | None = None,
) -> LoadResult:
    """Send ``workload`` to ``url/generate``; every request leaves a record, also one that failed.

    Faults of the server (HTTP errors, errors in the answer, broken JSON, silence, closed connections) are records with
    an ``error``. When as many requests fail in a row as there are slots (at least 5), the rest is not sent: each of
    them is recorded as ``not sent``.

    Parameters
    ----------
    url
        Where the server is, without a path.
    prompts
        Sent in order, the token ids where a prompt has them; over again from the first when the workload has more.
    timeout_s
        Limit of one request from sending to the last byte.
    return_token_ids
        Keep the tokens of every answer.
    repeat
        Written into the records.
    on_record
        Called with each record as its request ends, in the thread of the client; must be quick.

    Raises
    ------
    UsageError
        When there is no prompt, or the system does not allow that many connections.
    """
    if not prompts:
        raise UsageError("no prompts to send", next_step="name a prompt set that has some")
    concurrency = workload.max_concurrency or 1
    allow_sockets(concurrency)
    total = workload.num_prompts or len(prompts)
    bodies = [(prompt.index, _body(prompt, workload, stream)) for prompt in prompts]
    shared = _Drive(
        url=url.rstrip("/") + "/generate",
        stream=stream,
        most_tokens=workload.max_new_tokens or _MOST_TOKENS,
        timeout_s=timeout_s,
        token_ids=return_token_ids,
        repeat=repeat,
        give_up=max(_GIVE_UP, concurrency),
        on_record=on_record,
        queue=((number, *body) for number, body in enumerate(islice(cycle(bodies), total))),
    )
    cpu_s = run_async(lambda: _run_slots(shared, min(concurrency, total)))
    return summarise([shared.records[number] for number in sorted(shared.records)], concurrency, cpu_s)


def _body(prompt: Prompt, workload: Workload, stream: bool) -> bytes:
    sampling = {
        "temperature": workload.temperature,
        "max_new_tokens": workload.max_new_tokens,
        "ignore_eos": workload.ignore_eos,
    }
    content: dict[str, object] = {"text": prompt.text} if prompt.input_ids is None else {"input_ids": prompt.input_ids}
    content["sampling_params"] = {name: value for name, value in sampling.items() if value is not None}
    content["stream"] = stream
    return json.dumps(content).encode()


async def _run_slots(shared: _Drive, slots: int) -> float:
    """Processor seconds that the load took in this thread."""
    async with open_session(shared.timeout_s) as session:
        began, shared.zero = time.thread_time(), time.perf_counter()
        async with TaskGroup() as group:
            for _ in range(slots):
                group.create_task(_slot(session, shared))
        return time.thread_time() - began


async def _slot(session: aiohttp.ClientSession, shared: _Drive) -> None:
    for number, prompt_index, body in shared.queue:
        started = shared.now()
        if shared.failed_in_a_row >= shared.give_up:
            why = f"{NOT_SENT}: {shared.failed_in_a_row} requests in a row failed"
            shared.records[number] = RequestRecord(prompt_index, shared.repeat, started, started, error=why)
            continue
        since = partial(_since, shared, started) if shared.stream else None
        most, limit_s = shared.most_tokens, shared.timeout_s
        answer, fault = await ask(session, shared.url, body, most_tokens=most, timeout_s=limit_s, clock=since)
        record = RequestRecord(prompt_index, shared.repeat, started, shared.now(), error=fault)
        if answer is not None:
            record = record.with_answer(answer, token_ids=shared.token_ids)
        shared.failed_in_a_row = 0 if record.ok else shared.failed_in_a_row + 1
        shared.records[number] = record
        if shared.on_record is not None:
            shared.on_record(record)


def _since(shared: _Drive, started: float) -> float:
    return shared.now() - started
