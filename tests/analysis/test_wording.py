from __future__ import annotations

import pytest

from workbench.analysis.wording import capital, count, few, number, one_of, signed, span, speed_span, times


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (90.0, "90"),
        (56.72, "56.7"),
        (2370.4, "2,370"),
        (0.314, "0.31"),
        (9.994, "9.99"),
        (9.996, "10"),
        (99.96, "100"),
        (-63.64, "-63.6"),
        (0.0, "0.00"),
        (float("nan"), "not measured"),
        (1e6, "1,000,000"),
    ],
)
def test_numbers_have_three_digits(value: float, said: str) -> None:
    assert number(value) == said


def test_a_range_whose_ends_read_alike_is_one_value() -> None:
    assert span(1.558, 1.668) == "1.56-1.67"
    assert span(2.5212, 2.5234) == "2.52"


def test_ratios_and_changes() -> None:
    assert times(0.989) == "0.99x"
    assert [signed(value) for value in (0.08, -0.004, -0.08)] == ["+0.08", "+0.00", "-0.08"]
    assert signed(-0.0158, 3) == "-0.016"


@pytest.mark.parametrize(
    ("words", "said"),
    [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
)
def test_lists_of_words(words: list[str], said: str) -> None:
    assert one_of(words) == said
    assert one_of(iter(words)) == said


def test_of_many_words_the_first_are_said() -> None:
    assert few("abcde") == "a, b, c, d and e"
    assert few("abcdef") == "a, b, c, d and 2 more"


def test_speeds_as_a_range() -> None:
    assert speed_span([90.0, 63.6, 70.0]) == "63.6-90"
    assert speed_span([82.31, 82.33]) == "82.3"


def test_counts_agree_with_their_noun() -> None:
    assert [count(number_of, "run") for number_of in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]


def test_a_capital_changes_the_first_letter_only() -> None:
    assert capital("nothing beat SGLang") == "Nothing beat SGLang"
    assert capital("") == ""
