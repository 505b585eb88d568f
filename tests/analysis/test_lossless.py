import pandas as pd
import pytest
from analysis_tables import baseline, requests, runs, speculative

from workbench.analysis.answers import lossless
from workbench.analysis.lossless import AS_OFTEN, IDENTICAL, NO_CONTROL, NOT_LOSSLESS, losslessness_df


def _texts(run_id: str, texts: str, *, repeat: int = 0, ok: bool = True) -> list[dict[str, object]]:
    return [
        {"run_id": run_id, "prompt_index": index, "repeat": repeat, "text_hash": text, "ok": ok}
        for index, text in enumerate(texts)
    ]


def test_texts_are_compared_beside_two_plain_passes() -> None:
    held = requests(*_texts("base", "abcd"), *_texts("base", "abcx", repeat=1), *_texts("spec", "abxx"))
    row = losslessness_df(held, runs(baseline(), speculative())).iloc[0]
    assert (row["num_prompts"], row["num_same"], row["share"]) == (4, 2, 0.5)
    assert (row["control_prompts"], row["control_same"], row["control_share"]) == (4, 3, 0.75)
    assert pd.isna(row["reason"])


def test_two_baseline_runs_are_a_control_too() -> None:
    held = requests(*_texts("before", "ab"), *_texts("after", "ab"), *_texts("spec", "ab"))
    row = losslessness_df(held, runs(baseline("before"), baseline("after"), speculative())).iloc[0]
    assert (row["share"], row["control_share"]) == (1.0, 1.0)


def test_prompts_that_failed_in_one_arm_are_not_compared() -> None:
    held = requests(*_texts("base", "ab"), *_texts("spec", "a"), *_texts("spec", "?b", ok=False)[1:])
    row = losslessness_df(held, runs(baseline(), speculative())).iloc[0]
    assert (row["num_prompts"], row["num_same"]) == (1, 1)
    assert row["reason"] == "no control: the baseline was measured once"


def test_texts_that_need_not_be_equal_are_not_compared() -> None:
    held = requests(*_texts("base", "ab"), *_texts("spec", "ab"))
    sampled = losslessness_df(held, runs(baseline(temperature=0.7), speculative(temperature=0.7))).iloc[0]
    simulated = losslessness_df(held, runs(baseline(), speculative(simulated_accept_length=2.5))).iloc[0]
    assert "temperature 0.7" in sampled["reason"]
    assert "simulated" in simulated["reason"]
    assert pd.isna(sampled["share"])
    assert pd.isna(simulated["share"])


def test_missing_texts_are_named() -> None:
    pair = runs(baseline(), speculative())
    assert losslessness_df(requests(), pair)["reason"].item() == "no texts of the run"
    assert losslessness_df(requests(*_texts("spec", "a")), pair)["reason"].item() == "no texts of the baseline"
    assert losslessness_df(requests(), runs()).empty


# --- token by token ----------------------------------------------------------------------------------------------


def _tokens(run_id: str, *answers: list[int] | None, repeat: int = 0) -> list[dict[str, object]]:
    return [
        {"run_id": run_id, "prompt_index": index, "repeat": repeat, "output_ids": ids, "text_hash": f"{ids}"}
        for index, ids in enumerate(answers)
    ]


def test_tokens_tell_where_the_first_divergence_is() -> None:
    plain = ([1, 2, 3, 4], [5, 6, 7, 8], [9])
    held = requests(
        *_tokens("base", *plain),
        *_tokens("again", *plain),
        # the first prompt differs from its third token on, the second from its second
        *_tokens("spec", [1, 2, 9, 9], [5, 0, 7, 8], [9]),
    )
    row = losslessness_df(held, runs(baseline(), baseline("again"), speculative())).iloc[0]
    assert (row["compared"], row["num_prompts"], row["num_same"]) == ("tokens", 3, 1)
    assert (row["control_same"], row["control_prompts"], row["control_run_id"]) == (3, 3, "again")
    assert (row["first_prompt"], row["first_position"]) == (1, 1)
    assert row["verdict"] == NOT_LOSSLESS


def test_an_answer_that_goes_on_differs_at_the_end_of_the_other() -> None:
    held = requests(*_tokens("base", [1, 2]), *_tokens("spec", [1, 2, 3]))
    row = losslessness_df(held, runs(baseline(), speculative())).iloc[0]
    assert (row["first_prompt"], row["first_position"], row["verdict"]) == (0, 2, NO_CONTROL)


def test_where_one_arm_kept_no_tokens_the_texts_are_compared() -> None:
    held = requests(*_tokens("base", [1, 2], [3]), *_texts("again", "ab"), *_tokens("spec", [1, 2], [4]))
    held["text_hash"] = ["a", "b", "a", "b", "a", "c"]
    row = losslessness_df(held, runs(baseline(), baseline("again"), speculative())).iloc[0]
    assert (row["compared"], row["num_same"], row["num_prompts"]) == ("text hashes", 1, 2)
    assert row["first_prompt"] == 1
    assert pd.isna(row["first_position"])


def test_the_repeated_baseline_is_the_control_and_time_says_which_is_first() -> None:
    held = requests(*_tokens("a-later", [1, 9]), *_tokens("b-first", [1, 2]), *_tokens("spec", [1, 2]))
    first = baseline("b-first", recorded_at="2026-11-30T10:00:00")
    later = baseline("a-later", recorded_at="2026-11-30T11:00:00")
    row = losslessness_df(held, runs(later, first, speculative())).iloc[0]
    assert (row["baseline_run_id"], row["control_run_id"]) == ("b-first", "a-later")
    assert (row["num_same"], row["control_same"], row["verdict"]) == (1, 0, IDENTICAL)


def _shares(same: int, control: int, prompts: int) -> pd.DataFrame:
    """A run with ``same`` of its answers like the baseline's, and a control with ``control``."""
    plain = [[index] for index in range(prompts)]
    other = [[index] if index < same else [-1 - index] for index in range(prompts)]
    again = [[index] if index < control else [-1 - index] for index in range(prompts)]
    held = requests(*_tokens("base", *plain), *_tokens("again", *again), *_tokens("spec", *other))
    return losslessness_df(held, runs(baseline(), baseline("again"), speculative(dtype="bfloat16")))


@pytest.mark.parametrize(
    ("same", "control", "verdict"),
    [
        (20, 20, IDENTICAL),
        (20, 15, IDENTICAL),
        (19, 20, NOT_LOSSLESS),  # plain decoding never differs from itself, so one is more often
        (15, 15, AS_OFTEN),
        (16, 15, AS_OFTEN),
        # 6 against 5 of 20 differing happens by chance half of the time, 15 against 5 in 2 of 1000 cases
        (14, 15, AS_OFTEN),
        (5, 15, NOT_LOSSLESS),
    ],
)
def test_verdicts_by_the_control(same: int, control: int, verdict: str) -> None:
    assert _shares(same, control, 20)["verdict"].item() == verdict


def test_the_sentences_say_how_often_where_and_what_to_make_of_it() -> None:
    assert lossless(_shares(20, 20, 20)) == [
        "Greedy output is the plain one: 20 of 20 answers of spec are identical token by token (control, plain against "
        "plain: 20 of 20)."
    ]
    (differs,) = lossless(_shares(12, 20, 20))
    assert differs.startswith(
        "Greedy output differs from the plain one more often than the control: 12 of 20 answers of spec equal the "
        "baseline's token by token (control, plain against plain: 20 of 20); the first divergence is in prompt 12 "
        "at token 0 of the answer. In bfloat16 a verify step rounds otherwise"
    )
    (often,) = lossless(_shares(15, 15, 20))
    assert often.startswith("Output differs as often as plain decoding does from itself: 15 of 20 answers of spec")
    exact = _shares(12, 20, 20).assign(dtype="float32")
    assert lossless(exact)[0].endswith("In float32 near-ties are rare: suspect the verification before the rounding.")
    assert lossless(_shares(12, 20, 20).iloc[:0]) == []
