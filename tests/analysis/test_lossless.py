import pandas as pd
from analysis_tables import baseline, requests, runs, speculative

from workbench.analysis.lossless import losslessness_df


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
