"""The answers of a served run, so that the walk and the server can be compared on the very same tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.chat import Chat
from workbench.errors import InputError
from workbench.prompts import prompt_set
from workbench.store import read_requests, read_run
from workbench.training.parts import Sample


@dataclass(frozen=True, slots=True)
class Served:
    """Samples of a run, each answer once; ``steps`` and ``accept_length`` are the server's, unknown for a baseline."""

    samples: list[Sample]
    steps: int | None
    accept_length: float | None
    temperature: float | None
    prompt_set: str


def read_served(folder: Path, chat: Chat) -> Served:
    """The answers of a run folder whose requests hold token ids.

    Raises
    ------
    InputError
        When there are none, or the prompts are not those that the run had.
    """
    run = read_run(folder)
    rows, _ = read_requests(run)
    name = run.spec.workload.prompt_set or ""
    prompts = prompt_set(name).prompts
    found: dict[tuple[int, tuple[int, ...]], dict[str, object]] = {}
    for row in rows:
        ids, index = row.get("output_ids"), row.get("prompt_index")
        if isinstance(ids, list) and len(ids) > 1 and type(index) is int and 0 <= index < len(prompts):
            found.setdefault((index, tuple(ids)), row)
    if not found:
        raise InputError(
            "its requests hold no token ids",
            where=folder,
            next_step="runs at temperature 0 and concurrency 1 keep them: give one of those",
        )
    samples = []
    for (index, ids), row in found.items():
        asked = chat.prompt_ids([{"role": "user", "content": prompts[index].text}])
        if row.get("prompt_tokens") not in (None, len(asked)):
            what = f"prompt {index} has {len(asked)} tokens by this target's template, the run had "
            raise InputError(f"{what}{row['prompt_tokens']}", where=folder, next_step="name the run's own target")
        samples.append(Sample(np.array([*asked, *ids], np.uint32), len(asked), index, 0, prompts[index].task))
    decode = run.spec.spec_decode
    steps = decode.speculative_num_steps if decode is not None and decode.speculative_eagle_topk in (None, 1) else None
    length = _accept_length(list(found.values()))
    return Served(samples, steps, length, run.spec.workload.temperature, name)


def _accept_length(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Tokens a verify step, without the one that the prefill gives: the walk's definition."""
    tokens = [row["completion_tokens"] for row in rows if type(row.get("completion_tokens")) is int]
    steps = [row["spec_verify_ct"] for row in rows if type(row.get("spec_verify_ct")) is int]
    if len(tokens) < len(rows) or len(steps) < len(rows) or not sum(steps):
        return None
    return float((sum(tokens) - len(rows)) / sum(steps))
