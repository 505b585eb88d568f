"""Prompts near held-out ones, by similarities worked out by hand."""

from __future__ import annotations

import pytest

from workbench.training.overlap import HeldOut, triples

HELD = "Compose an engaging travel blog post about a recent trip to Hawaii"  # 12 words, 10 triples


def test_triples_are_of_words() -> None:
    assert triples("The cat, SAT on") == {("the", "cat", "sat"), ("cat", "sat", "on")}
    assert triples("Hello there") == {("hello", "there")}


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (HELD, True),
        ("compose an engaging TRAVEL blog post, about a recent trip to hawaii!!", True),
        # One word of twelve changed in the middle: 7 of 13 triples are shared, 0.54.
        ("Compose an engaging travel blog post about a recent trip to Maui", True),
        ("Compose an engaging travel diary post about a recent trip to Hawaii", True),
        # Two words apart from each other changed: 4 of 16, 0.25.
        ("Compose an engaging journey blog post about one recent trip to Hawaii", False),
        # All of it inside a longer prompt.
        ("You are a writer of much fame. " * 5 + HELD, True),
        ("Compose a letter to my landlord about a recent trip", False),
        ("", False),
    ],
)
def test_what_is_near(text: str, near: bool) -> None:
    assert HeldOut([HELD, "Something else entirely that shares no words here"]).resembles(text) is near


def test_a_short_prompt_is_not_found_inside_others() -> None:
    held = HeldOut(["write a poem about rain"])  # 3 triples
    assert held.resembles("Write a poem about rain.")
    assert not held.resembles("In the style of an old sailor who has seen much, write a poem about rain and the sea")
