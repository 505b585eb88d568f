from __future__ import annotations

import pytest

from workbench.words import WORDS, word_of, words_in


def names(*texts: str) -> list[str]:
    return [word.name for word in words_in(texts)]


def test_words_are_found_whole_in_every_form_and_the_longest_first() -> None:
    assert names("Accept lengths rise; the BASELINES do not") == ["accept length", "baseline"]
    assert names("simulated acceptance", "8 at once") == ["concurrency", "simulated acceptance"]
    # Parts of other words, of flags and of column names are none.
    assert names("trunk", "--speculative-num-steps", "accept_length", "prefilled", "streets") == []
    assert names("verify step") == ["verify step"]


@pytest.mark.parametrize(
    ("form", "name"), [("Break-even", "break-even"), ("output tok/s", "output speed"), ("max_concurrency", None)]
)
def test_a_form_leads_to_its_word(form: str, name: str | None) -> None:
    word = word_of(form)
    assert (None if word is None else word.name) == name


def test_words_are_in_the_order_of_the_alphabet_and_no_form_means_two_of_them() -> None:
    assert [word.name.lower() for word in WORDS] == sorted(word.name.lower() for word in WORDS)
    forms = [form.lower() for word in WORDS for form in (word.name, *word.also)]
    assert len(forms) == len(set(forms))
    assert len({word.id for word in WORDS}) == len(WORDS)


def test_every_meaning_is_one_or_more_sentences() -> None:
    assert [word.name for word in WORDS if not (word.meaning[0].isupper() or word.meaning[0] == "(")] == []
    assert [word.name for word in WORDS if not word.meaning.endswith(".")] == []
