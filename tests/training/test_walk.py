from __future__ import annotations

import numpy as np
import pytest

from workbench.training.walk import Walk, accept_lengths, intervals, walk


def flags(*rows: str) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    return np.array([[c == "x" for c in row] for row in rows])


def test_rounds_of_a_walk_done_by_hand() -> None:
    # Six slots, an answer of seven tokens. Runs with one draft: 1 0 1 1 0 0; with two: 2 0 1 2 0 0.
    right = flags("x.xx..", "xx.x..")
    rounds, accepted = walk(right)
    # One draft: slots 0 (+2), 2 (+2), 4, 5: 4 rounds. Two drafts: slots 0 (+3), 3 (+3): 2 rounds.
    assert rounds.tolist() == [4, 2]
    assert accepted.tolist() == [0, 0, 2]


def test_a_later_draft_does_not_count_behind_a_wrong_one() -> None:
    rounds, accepted = walk(flags("..", "xx"))
    assert rounds.tolist() == [2, 2]
    assert accepted.tolist() == [2, 0, 0]


def one(prompt: int, tokens: int, rounds: int) -> Walk:
    some = np.zeros(1, np.int64)
    return Walk(prompt, "t", tokens, np.array([rounds]), np.zeros(2, np.int64), some, some, 1.0)


def test_accept_length_is_the_ratio_of_sums() -> None:
    assert accept_lengths([one(0, 10, 10), one(1, 30, 10)]) == [2.0]


def test_the_interval_draws_prompts_with_all_their_answers() -> None:
    same = [one(0, 10, 5), one(1, 20, 10)]
    assert intervals(same, draws=50, seed=0) == [(2.0, 2.0)]
    # Two answers that differ belong to one prompt: nothing varies. To two prompts: lengths 1, 1.5 and 2 are drawn.
    assert intervals([one(0, 10, 10), one(0, 20, 10)], draws=50, seed=0) == [(1.5, 1.5)]
    low, high = intervals([one(0, 10, 10), one(1, 20, 10)], draws=200, seed=0)[0]
    assert (low, high) == (pytest.approx(1.0), pytest.approx(2.0))
