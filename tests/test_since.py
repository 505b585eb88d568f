"""The words for what changed since the last good run."""

from __future__ import annotations

from workbench.since import MOST_ROWS, since_section, since_sentence, worse_sentences
from workbench.summary import Change


def change(verdict: str, role: str = "speculative", **more: object) -> Change:
    return Change.model_validate(
        {"run": "r", "label": "L", "figure": "decode speed", "unit": "tok/s", "verdict": verdict, "role": role, **more}
    )


def test_one_sentence_counts_them() -> None:
    held = [change("worse"), change("better"), change("no change beyond noise"), change("not decidable")]
    assert since_sentence(held) == (
        "1 of 4 figures got worse since the last good run; 1 better, 1 as before, 1 not decidable."
    )
    assert since_sentence(held[:1]) == "1 of 1 figure got worse since the last good run."
    assert since_sentence([]) == "Nothing can be compared with an earlier run."


def test_a_plain_server_that_got_slower_too_points_at_the_machine() -> None:
    advice = "The plain server got slower, too: look at the machine before the drafter."
    assert advice in worse_sentences([change("worse"), change("worse", role="baseline")])
    assert advice not in worse_sentences([change("worse"), change("no change beyond noise", role="baseline")])


def test_what_is_missing_is_said_to_be() -> None:
    (sentence,) = worse_sentences([change("worse")])
    assert sentence == "L: decode speed not compared: not measured tok/s, not measured when it was last good"


def test_no_section_without_anything_earlier() -> None:
    assert since_section(None, ()) is None
    assert since_section(None, ["a: failed"]) is not None


def test_a_page_holds_the_first_of_many_comparisons_worst_first() -> None:
    section = since_section([*[change("no change beyond noise")] * 100, change("worse", value=1.0)], ())
    assert section is not None
    assert (len(section.rows), section.left_out) == (MOST_ROWS, 101 - MOST_ROWS)
    assert section.rows[0][6] == "worse"


def test_times_to_the_minute() -> None:
    (sentence,) = worse_sentences([change("worse", good_at="2026-11-29T02:15:04+00:00", changed="sglang 1 -> 2")])
    assert sentence.endswith("last good (2026-11-29 02:15); since then sglang 1 -> 2")
