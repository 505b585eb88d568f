"""How good a draft is on given answers: the walk of `workbench.training.walk`, computed in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.drafter.model import Eagle3Draft
from workbench.reference.target import Target
from workbench.training.compiled import Compiled
from workbench.training.features import Features
from workbench.training.packs import Pack, pack
from workbench.training.parts import Sample, distinct_4
from workbench.training.unroll import Unroll
from workbench.training.walk import Walk, accept_lengths, intervals, sum_of, walk

REPETITIVE = 0.5
"""An answer with a smaller share of different runs of four tokens is called repetitive."""
_BATCH_TOKENS = {"cuda": 1 << 15, "cpu": 1 << 12}
_CHUNK_LOGITS = {"cuda": 1 << 28, "cpu": 1 << 24}
_DRAWS = 2000


@torch.no_grad()
def walks(
    target: Target,
    draft: Eagle3Draft,
    samples: Sequence[Sample],
    *,
    capture: tuple[int, ...],
    steps: int,
    say: Callable[[str], None] = lambda _: None,
) -> list[Walk]:
    """One walk a sample, in their order; samples whose answer is one token have none."""
    used = [sample for sample in samples if sample.response_tokens > 1]
    if not used:
        return []
    device, longest = target.embed.device, max(len(sample.ids) for sample in used)
    eager = Compiled(on=False)
    features = Features(target, capture, longest, eager)
    unroll = Unroll(draft, target.embed, steps, longest, eager)
    found: list[Walk] = []
    for batch in _batches(used, _BATCH_TOKENS[device.type]):
        one = pack(batch, steps, frozenset(), device)
        right, known = _right(draft, unroll(one, features(one)[0]), one)
        found += _walked(batch, right.cpu().numpy(), known.cpu().numpy())
        say(f"walked along {len(found)} of {len(used)} answers")
    return found


def _right(draft: Eagle3Draft, states: Sequence[Tensor], one: Pack) -> tuple[Tensor, Tensor]:
    """[passes, judged]: whether the draft is right, and whether there is a token to be right about."""
    # The slot of position u is u - 1, and its pass j drafts token u + 1 + j.
    slots, ends = one.first, one.row_ends[one.first]
    rows = max(1, _CHUNK_LOGITS[slots.device.type] // draft.config.draft_vocab_size)
    right, known = [], []
    for j, state in enumerate(states):
        best = [draft.logits(piece).argmax(-1) for piece in state[slots].split(rows)]
        wanted = one.judged + 1 + j
        there = wanted <= ends
        right.append((draft.target_ids[torch.cat(best)] == one.ids[torch.minimum(wanted, ends)]) & there)
        known.append(there)
    return torch.stack(right), torch.stack(known)


def _walked(
    batch: Sequence[Sample], right: np.ndarray[Any, np.dtype[np.bool_]], known: np.ndarray[Any, np.dtype[np.bool_]]
) -> Iterator[Walk]:
    start = 0
    for sample in batch:
        # The answer's last token has nothing behind it.
        part = slice(start, start + sample.response_tokens - 1)
        start += sample.response_tokens
        rounds, accepted = walk(right[:, part])
        yield Walk(
            prompt=sample.prompt,
            task=sample.task,
            tokens=sample.response_tokens - 1,
            rounds=rounds,
            accepted=accepted,
            right=right[:, part].sum(1),
            known=known[:, part].sum(1),
            distinct_4=distinct_4(sample.ids[sample.prompt_tokens :]),
        )


def _batches(samples: Sequence[Sample], tokens: int) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    for sample in samples:
        if batch and sum(len(s.ids) for s in batch) + len(sample.ids) > tokens:
            yield batch
            batch = []
        batch.append(sample)
    yield batch


def summary(found: Sequence[Walk], *, seed: int) -> dict[str, Any]:
    """Figures of walks for a JSON file. ``seed`` is that of the intervals."""
    varied = [one for one in found if one.distinct_4 >= REPETITIVE]
    tasks: dict[str, list[Walk]] = {}
    for one in found:
        tasks.setdefault(one.task, []).append(one)
    return {
        **_figures(found, seed),
        "by_task": {task: _short(group) for task, group in sorted(tasks.items())},
        "without_repetitive": {"below_distinct_4": REPETITIVE, **(_figures(varied, seed) if varied else _nothing())},
    }


def _figures(found: Sequence[Walk], seed: int) -> dict[str, Any]:
    accepted = sum_of([one.accepted for one in found])
    survival = accepted[::-1].cumsum()[::-1] / accepted.sum()
    right, known = sum_of([one.right for one in found]), sum_of([one.known for one in found])
    return {
        **_short(found),
        "interval_95": _by_steps([list(pair) for pair in intervals(found, draws=_DRAWS, seed=seed)]),
        # With the most drafts: the share of rounds that accept at least k.
        "survival": survival.tolist(),
        "accuracy_by_pass": (right / np.maximum(1, known)).tolist(),
        "distinct_4_mean": float(np.mean([one.distinct_4 for one in found])),
        "repetitive_answers": sum(one.distinct_4 < REPETITIVE for one in found),
    }


def _short(found: Sequence[Walk]) -> dict[str, Any]:
    return {
        "answers": len(found),
        "prompts": len({one.prompt for one in found}),
        "tokens": sum(one.tokens for one in found),
        "accept_length": _by_steps(accept_lengths(found)),
    }


def _nothing() -> dict[str, Any]:
    return {"answers": 0}


def _by_steps(values: Sequence[Any]) -> dict[str, Any]:
    return {str(steps): value for steps, value in enumerate(values, 1)}


def table(figures: Mapping[str, Any]) -> str:
    """Accept length by steps, for people."""
    varied = figures["without_repetitive"].get("accept_length", {})
    lines = [f"{'steps':>5}  {'accept length':>13}  {'95 %':>13}  {'not repetitive':>14}  {'accuracy of the pass':>20}"]
    for steps, length in figures["accept_length"].items():
        low, high = figures["interval_95"][steps]
        other = f"{varied[steps]:.3f}" if steps in varied else "-"
        accuracy = figures["accuracy_by_pass"][int(steps) - 1]
        lines.append(f"{steps:>5}  {length:>13.3f}  {f'{low:.3f}-{high:.3f}':>13}  {other:>14}  {accuracy:>20.3f}")
    lines.append(
        f"{figures['answers']} answers to {figures['prompts']} prompts, {figures['tokens']:,} tokens; "
        f"{figures['repetitive_answers']} answers are repetitive (distinct-4 below {REPETITIVE})"
    )
    return "\n".join(lines)
