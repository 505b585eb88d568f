"""A corpus of the target's answers, made through a server; stopped and run again, it goes on where it was.

`make_answers` is the main flow.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.chat import Chat, load_chat
from workbench.errors import CheckpointError, SpecError, UsageError
from workbench.files import read_small
from workbench.models import SMOLLM2
from workbench.paths import under_root
from workbench.plain import from_json
from workbench.progress import duration
from workbench.prompts import Prompt, PromptSet, prompt_set, with_token_ids
from workbench.provenance import redact
from workbench.spec import MAX_COUNT
from workbench.terminal import Lines
from workbench.training import folder as on_disk
from workbench.training.asking import Part, Sampling, Tally, ask_all
from workbench.training.corpus import write_about
from workbench.training.serving import at_once, check_engine_samples, described, started

LOG = "server.log"
_TOLD_EVERY_S = 1.0
_SMALL_PART, _LARGE_PART = 16, 256
"""Prompts a part. What is in no whole part yet is lost when the command is killed: seconds of work, also on a CPU."""
_SHORTEST, _LEAST_DISTINCT = 24, 0.5
"""Filters of sampled answers. A small target answers many prompts in a word, and loops in many long answers."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for. ``server_like`` is a campaign whose server settings are used, ``url`` are servers that run.

    Filters left out are none for greedy answers, which are there to be judged by.
    """

    target: str
    prompts: str
    out: Path
    url: Sequence[str] = ()
    engine: str = "sglang"
    server_like: str | None = None
    temperature: float = 0.7
    top_p: float = 0.95
    max_new_tokens: int = 256
    answers_per_prompt: int = 1
    concurrency: int = 256
    limit: int | None = None
    seed: int = 0
    min_response_tokens: int | None = None
    min_distinct_4: float | None = None
    timeout_s: float = 600.0

    @property
    def filters(self) -> dict[str, float]:
        sampled = self.temperature > 0
        shortest, least = self.min_response_tokens, self.min_distinct_4
        return {
            "min_response_tokens": (_SHORTEST if sampled else 0) if shortest is None else shortest,
            "min_distinct_4": (_LEAST_DISTINCT if sampled else 0.0) if least is None else least,
        }


def make_answers(order: Order, lines: Lines) -> str:
    """Make a corpus, or what is missing of it, and say what it holds.

    Raises
    ------
    UsageError, InputError
        When the order, the target, the prompts or the folder cannot be used.
    LaunchError
        When no server answers any more; what was answered is kept.
    """
    _check(order)
    target = _target_folder(order.target)
    chat = load_chat(target)
    found = prompt_set(order.prompts)
    prompts = with_token_ids(_limited(found, order.limit), partial(_prompt_ids, chat))
    about = _described_order(order, target, chat, found, prompts)
    with on_disk.alone(order.out):
        about = on_disk.begin(order.out, about, [prompt.task for prompt in found.prompts])
        parts = on_disk.parts_of(about, prompts)
        todo = on_disk.missing(order.out, parts)
        if len(todo) < len(parts):
            lines.say(f"{len(parts) - len(todo)} of {len(parts)} parts are there already")
        if todo:
            about = {**about, "finished": False}
            about = _answer(order, target, about, todo, len(parts) - len(todo), lines)
        about = on_disk.finish(order.out, about, parts)
    return _told(order.out, about)


def _check(order: Order) -> None:
    if order.temperature < 0 or not 0 < order.top_p <= 1:
        raise UsageError("temperature must be at least 0, top-p above 0 and at most 1", next_step="change them")
    if order.temperature == 0 and order.answers_per_prompt > 1:
        raise UsageError("several greedy answers to a prompt are the same one", next_step="ask for one, or sample")
    if not order.url:
        check_engine_samples(order.engine, order.temperature)


# --- what is asked -----------------------------------------------------------------------------------------------


def _target_folder(target: str) -> Path:
    if target == SMOLLM2 and not Path(under_root(target)).is_dir():
        from workbench.reference.smollm2 import smollm2_folder

        return smollm2_folder()
    return Path(under_root(target))


def _described_order(
    order: Order, target: Path, chat: Chat, found: PromptSet, prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """corpus.json as far as it is known before the first answer."""
    vocab_size, eos = _vocabulary(target)
    return {
        "prompt_set": {
            "name": found.name,
            "source": redact(found.source),
            "licence": redact(found.licence),
            "prompts": len(prompts),
        },
        "prompts_sha256": on_disk.prompts_sha256(prompts),
        "tasks": sorted({prompt.task for prompt in found.prompts}),
        "target": target.name,
        "vocab_size": vocab_size,
        "eos_token_ids": eos,
        "chat_template_sha256": hashlib.sha256((chat.template or "").encode()).hexdigest(),
        "temperature": order.temperature,
        "top_p": order.top_p if order.temperature > 0 else None,
        "max_new_tokens": order.max_new_tokens,
        "seed": order.seed if order.temperature > 0 else None,
        "answers_per_prompt": order.answers_per_prompt,
        "part_size": _part_size(order),
        "filters": order.filters,
    }


def _part_size(order: Order) -> int:
    slots = at_once(order.engine, order.concurrency) if not order.url else order.concurrency
    return min(_LARGE_PART, max(_SMALL_PART, slots))


def _limited(found: PromptSet, limit: int | None) -> Sequence[Prompt]:
    if limit is not None and limit > len(found.prompts):
        raise SpecError(f"{limit} prompts are asked for, {found.name} has {len(found.prompts)}", where="--limit")
    return found.prompts[:limit]


def _prompt_ids(chat: Chat, text: str) -> list[int]:
    return chat.prompt_ids([{"role": "user", "content": text}])


def _vocabulary(target: Path) -> tuple[int, list[int]]:
    path = target / "config.json"
    try:
        config = from_json(read_small(path))
        text = config.get("text_config", config)
        size, eos = text["vocab_size"], text.get("eos_token_id")
        ids = [eos] if isinstance(eos, int) else list(eos or [])
        if type(size) is not int or not 0 < size <= MAX_COUNT or any(type(each) is not int for each in ids):
            raise ValueError(f"vocab_size {str(size)[:40]}, eos_token_id {str(eos)[:40]}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"no usable config ({error})", where=path, next_step="name a model folder") from error
    return size, ids


# --- asking ------------------------------------------------------------------------------------------------------


def _answer(
    order: Order, target: Path, about: dict[str, Any], todo: Sequence[Part], done: int, lines: Lines
) -> dict[str, Any]:
    """Answer the parts that are missing; corpus.json gains the engine that did, however this ends."""
    failures: Counter[str] = Counter(about.get("failures", {}))
    # SGLang draws all answers from one stream of numbers: begun anew with the same seed it would repeat itself.
    with _server(order, target, random_seed=order.seed + done, lines=lines) as urls:
        engines = [described(url) for url in urls]
        engine = _alike(engines, urls)
        check_engine_samples(engine["engine"], order.temperature)
        about = {**about, "engines": [*about.get("engines", []), *engines]}
        write_about(order.out, about)
        progress = _Progress(sum(len(part.prompts) for part in todo), lines)
        lines.say(f"{progress.total:,} answers by {engine['model']} on {engine['engine']} {engine['version']}")
        try:
            tally = ask_all(
                urls,
                todo,
                _sampling(order),
                vocab_size=about["vocab_size"],
                concurrency=at_once(engine["engine"], order.concurrency),
                timeout_s=order.timeout_s,
                on_part=lambda part, samples, failed: on_disk.keep(order.out, about, part, samples, failed),
                on_answer=progress,
            )
        finally:
            lines.clear()
    lines.say(progress.told())
    return {**about, "failures": dict(failures + tally.failures)}


def _sampling(order: Order) -> Sampling:
    return Sampling(order.temperature, order.top_p, order.max_new_tokens, order.seed)


@contextlib.contextmanager
def _server(order: Order, target: Path, *, random_seed: int, lines: Lines) -> Iterator[Sequence[str]]:
    if order.url:
        yield order.url
        return
    with started(
        order.engine,
        target,
        like=order.server_like,
        concurrency=order.concurrency,
        random_seed=random_seed,
        log=order.out / LOG,
        say=lines.say,
    ) as url:
        yield [url]


def _alike(engines: Sequence[dict[str, Any]], urls: Sequence[str]) -> dict[str, Any]:
    """What all of these servers are.

    Raises
    ------
    UsageError
        When they do not serve one model by one engine.
    """
    first = engines[0]
    for engine, url in zip(engines[1:], urls[1:], strict=True):
        for name in ("engine", "version", "model"):
            if engine[name] != first[name]:
                raise UsageError(
                    f"{name} is {engine[name]} here and {first[name]} at {urls[0]}",
                    where=url,
                    next_step="ask servers of one kind",
                )
    return first


class _Progress:
    """Answers, tokens a second and the time left, by the mean of this command."""

    def __init__(self, total: int, lines: Lines) -> None:
        self.total = total
        self._lines = lines
        self._tally = Tally()
        self._began = self._last = self._shown = time.monotonic()

    def __call__(self, tally: Tally) -> None:
        self._tally, self._last = replace(tally), time.monotonic()
        if self._last - self._shown < _TOLD_EVERY_S:
            return
        self._shown = self._last
        answered = tally.answers + sum(tally.failures.values())
        left = (self.total - answered) * (self._last - self._began) / answered
        self._lines.overwrite(f"{self.told()}, about {duration(left)} left")

    def told(self) -> str:
        tally, seconds = self._tally, self._last - self._began
        speed = f", {tally.response_tokens / seconds:,.0f} tok/s" if seconds > 0 else ""
        failed = sum(tally.failures.values())
        kinds = ", ".join(f"{kind} {count}" for kind, count in tally.failures.most_common())
        failures = f", {failed} failed twice ({kinds})" if failed else ""
        retried = f", {tally.retried} asked again" if tally.retried else ""
        return f"{tally.answers:,} of {self.total:,} answers in {duration(seconds)}{speed}{retried}{failures}"


def _told(out: Path, about: dict[str, Any]) -> str:
    counts, filters = about["counts"], about["filters"]
    closed = counts["closed"] / max(1, counts["samples"])
    return "\n".join(
        [
            f"{out}: {counts['samples']:,} answers, {counts['response_tokens']:,} response tokens "
            f"({closed:.0%} ended by themselves), {counts['failed']} failed",
            f"kept by the filters: {counts['kept_samples']:,} answers, {counts['kept_response_tokens']:,} tokens "
            f"(below {filters['min_response_tokens']} tokens: {counts['short']:,}; "
            f"distinct-4 below {filters['min_distinct_4']}: {counts['repetitive']:,})",
        ]
    )
