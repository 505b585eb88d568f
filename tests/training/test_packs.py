from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

from training_files import CPU, sample

from workbench.training.packs import pack

EOS = frozenset({0})


def test_a_sample_worked_out_by_hand() -> None:
    # Position:  0  1  2 | 3  4  5  6      the prompt is 7 8 9, the answer 5 6 7 and the closing 0.
    one = pack([sample([7, 8, 9, 5, 6, 7, 0], 3)], 2, EOS, CPU)
    # Slots 0-5 stand for tokens 1-6; two passes look back two slots from the response, to slot 1.
    assert one.slot_tokens.tolist() == [0, 1, 2, 3, 4, 5]
    assert one.rows.tolist() == one.row_tokens.tolist() == [1, 2, 3, 4, 5]
    assert (one.slots.lengths, one.queries.lengths) == ((6,), (5,))
    # Judged where the target speaks at 5, 6, 7 (positions 3, 4, 5), and not at the closing token.
    assert one.judged.tolist() == [3, 4, 5]
    # Pass 0 does so from slots 2, 3, 4, which are rows 1, 2, 3; pass 1 from the slot before.
    assert one.first.tolist() == [1, 2, 3]
    assert one.depth.tolist() == [2, 2, 2]
    assert one.row_ends.tolist() == [6] * 5


def test_an_answer_without_a_closing_token_is_judged_to_its_end() -> None:
    one = pack([sample([7, 8, 9, 5, 6], 3)], 1, EOS, CPU)
    assert one.judged.tolist() == [3, 4]
    assert one.rows.tolist() == [2, 3]


def test_a_closing_token_within_the_prompt_is_a_token_like_any_other() -> None:
    one = pack([sample([7, 0, 9, 5, 6], 3)], 1, EOS, CPU)
    assert one.judged.tolist() == [3, 4]


def test_a_prompt_shorter_than_the_passes_has_fewer_of_them() -> None:
    one = pack([sample([7, 5, 6, 4], 1)], 3, EOS, CPU)
    # Position 1 is reached from slot 0 alone, in pass 0; position 3 from slot 2, 1 and 0.
    assert one.judged.tolist() == [1, 2, 3]
    assert one.first.tolist() == [0, 1, 2]
    assert one.depth.tolist() == [1, 2, 3]


def test_samples_stand_one_behind_the_other() -> None:
    one = pack([sample([7, 8, 5, 6], 2), sample([1, 2, 3, 4, 5], 3)], 1, EOS, CPU)
    assert one.ids.tolist() == [7, 8, 5, 6, 1, 2, 3, 4, 5]
    assert one.places.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert one.tokens.ends.tolist() == [0, 4, 9]
    # Slots: 0 1 2 of the first, 3 4 5 6 of the second (tokens 4 5 6 7).
    assert one.slot_tokens.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert one.rows.tolist() == [1, 2, 5, 6]
    assert one.row_tokens.tolist() == [1, 2, 6, 7]
    assert one.row_ends.tolist() == [3, 3, 8, 8]
    assert one.judged.tolist() == [2, 3, 7, 8]
    assert one.first.tolist() == [0, 1, 2, 3]
