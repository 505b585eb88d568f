"""Accept length without a server: along an answer of the target, how often would a chain of drafts have been right?

At temperature 0 a verify step accepts drafts as long as they are the target's own tokens, and the target adds one more.
Fed with the true tokens, the draft's passes say for every slot how many drafts in a row would have been right; stepping
from slot to slot by what is accepted there gives the rounds that a server needs, for every number of steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Walk:
    """One answer: ``rounds`` [passes] verify steps that it takes with 1, 2, ... drafts a step, for ``tokens`` tokens.

    ``accepted`` [passes + 1] says how many of the rounds with the most drafts accept 0, 1, ... of them. ``right``
    [passes] counts slots whose draft of that pass is right, of ``known`` [passes] where the answer goes on so far.
    """

    prompt: int
    task: str
    tokens: int
    rounds: Ints
    accepted: Ints
    right: Ints
    known: Ints
    distinct_4: float


def walk(right: Flags) -> tuple[Ints, Ints]:
    """Rounds and accepted drafts of an answer.

    Parameters
    ----------
    right
        [passes, slots]: whether the draft of each pass, made from slot i of the answer (0: the prompt's last, which
        knows the answer's first token), is the answer's token i + 1 + pass. False where the answer has no such token.

    Returns
    -------
    tuple of array
        ``rounds`` and ``accepted`` of `Walk`. A round yields its accepted drafts and one token more, the last round
        perhaps no more than the drafts.
    """
    passes, slots = right.shape
    runs = np.cumprod(right, axis=0, dtype=np.int64).cumsum(axis=0)
    rounds, accepted = np.zeros(passes, np.int64), np.zeros(passes + 1, np.int64)
    for most in range(passes):
        along = runs[most].tolist()
        slot = 0
        while slot < slots:
            rounds[most] += 1
            accepted[along[slot]] += most == passes - 1
            slot += along[slot] + 1
    return rounds, accepted


def accept_lengths(walks: Sequence[Walk]) -> list[float]:
    """Tokens a verify step, bonus token included and the prefill's token not, by number of steps from 1 on."""
    rounds = sum_of([walk.rounds for walk in walks])
    tokens = sum(walk.tokens for walk in walks)
    return [tokens / count for count in rounds.tolist()]


def sum_of(arrays: Sequence[Ints]) -> Ints:
    total: Ints = np.sum(arrays, axis=0)
    return total


def intervals(walks: Sequence[Walk], *, draws: int, seed: int) -> list[tuple[float, float]]:
    """95 % of `accept_lengths` when prompts are drawn again, answers to the same prompt together."""
    prompts = sorted({walk.prompt for walk in walks})
    place = {prompt: i for i, prompt in enumerate(prompts)}
    passes = len(walks[0].rounds)
    tokens, rounds = np.zeros(len(prompts)), np.zeros((len(prompts), passes))
    for one in walks:
        tokens[place[one.prompt]] += one.tokens
        rounds[place[one.prompt]] += one.rounds
    random = np.random.default_rng(seed)
    drawn = random.multinomial(len(prompts), np.full(len(prompts), 1 / len(prompts)), size=draws)
    lengths = (drawn @ tokens)[:, None] / (drawn @ rounds)
    low, high = np.quantile(lengths, (0.025, 0.975), axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))
