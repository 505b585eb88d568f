from __future__ import annotations

import itertools

import numpy as np

from workbench.training.corpus import Corpus, Sample
from workbench.training.order import epoch, pieces, share, steps_in, usable


def sample(prompt: int, length: int, prompt_tokens: int = 2, answer: int = 0) -> Sample:
    return Sample(np.arange(length, dtype=np.uint16), prompt_tokens, prompt, answer, "t")


SAMPLES = [sample(i, 3 + i % 5) for i in range(20)]


def test_an_epoch_takes_every_sample_once_in_steps_that_fit() -> None:
    steps = list(epoch(SAMPLES, 0, seed=0, tokens=16))
    assert sorted(s.prompt for step in steps for s in step) == list(range(20))
    assert all(sum(len(s.ids) for s in step) <= 16 for step in steps)
    # Full: the first sample of the next step would not have fitted.
    for step, following in itertools.pairwise(steps):
        assert sum(len(s.ids) for s in step) + len(following[0].ids) > 16


def test_order_is_of_seed_and_epoch() -> None:
    def prompts(number: int, seed: int) -> list[int]:
        return [s.prompt for step in epoch(SAMPLES, number, seed=seed, tokens=16) for s in step]

    assert prompts(1, 0) == prompts(1, 0)
    assert prompts(1, 0) != prompts(0, 0) != prompts(0, 1)


def test_a_sample_longer_than_a_step_has_one_for_itself() -> None:
    assert [len(step) for step in epoch([sample(0, 9), sample(1, 9)], 0, seed=0, tokens=4)] == [1, 1]


def test_steps_are_counted_as_they_will_be_taken() -> None:
    taken = [len(list(epoch(SAMPLES, number, seed=5, tokens=16))) for number in range(3)]
    assert steps_in(SAMPLES, 2, seed=5, tokens=16) == taken[0] + taken[1]
    assert steps_in(SAMPLES, 2.5, seed=5, tokens=16) == taken[0] + taken[1] + round(taken[2] / 2)
    assert steps_in(SAMPLES, 0.001, seed=5, tokens=16) == 1


def test_processes_share_a_step_and_each_cuts_its_part() -> None:
    step = tuple(SAMPLES[:5])
    assert [s.prompt for s in share(step, 0, 2)] == [0, 2, 4]
    assert [s.prompt for s in share(step, 1, 2)] == [1, 3]
    # Lengths 3, 4, 5, 6, 7.
    assert [[s.prompt for s in piece] for piece in pieces(step, 9)] == [[0, 1], [2], [3], [4]]
    assert list(pieces(step, None)) == [step]
    assert list(pieces((), 9)) == []


def test_what_cannot_be_used_is_counted() -> None:
    corpus = Corpus([sample(0, 9), sample(1, 9, 8), sample(2, 9, 7), sample(0, 9, answer=1), sample(3, 2)], {})
    kept, left_out = usable(corpus, 8, 1)
    # Cut at 8: of the second nothing is left to answer, of the third one token, of the fifth none.
    assert [(s.prompt, len(s.ids)) for s in kept] == [(0, 8)]
    assert left_out == {"no_response_within_max_tokens": 3, "beyond_answers_per_prompt": 1}
