import numpy as np
import pandas as pd
import pytest
from analysis_tables import baseline, recorded, requests, runs, speculative
from scaling_tables import DRAFTER, curve, drafters

from workbench.analysis.acceptance import accept_length_df
from workbench.analysis.scaling import scaling_groups, scaling_points_df
from workbench.analysis.scaling.points import prompt_sums, resample_prompts

SIZED = DRAFTER | {"training_samples": 500}


def point(run: dict[str, object], *rows: dict[str, object]) -> pd.Series:
    points = scaling_points_df(runs(baseline(), run), requests(*rows))
    assert len(points) == 1
    return points.iloc[0]


def test_a_point_pools_its_requests_and_resamples_prompts() -> None:
    # histograms [2, 1, 1] and [1, 0, 1]: 7 and 4 tokens in 4 and 2 steps; a resample of the two prompts is 7/4, 11/6, 2
    row = point(
        speculative(**SIZED),
        {"steps_histogram": [2, 1, 1]},
        {"steps_histogram": [1, 0, 1]},
    )
    assert row["accept_length"] == pytest.approx(11 / 6)
    assert (row["low"], row["high"]) == pytest.approx((1.75, 2.0))
    assert (row["n"], row["num_verify_steps"]) == (2, 6)
    assert row["run_ids"] == ("spec",)
    assert row["fit_note"] == ""


def test_without_histograms_the_token_of_the_prefill_is_left_out() -> None:
    row = point(speculative(**SIZED), {"completion_tokens": 21, "spec_verify_ct": 10})
    assert row["accept_length"] == pytest.approx(2.0)
    assert np.isnan(row["low"])  # one prompt has no spread


def test_failed_requests_do_not_count() -> None:
    row = point(
        speculative(**SIZED),
        {"steps_histogram": [1, 1]},
        {"steps_histogram": [0, 0, 0, 9], "ok": False},
    )
    assert row["accept_length"] == pytest.approx(1.5)


def test_points_agree_with_the_accept_length_of_the_runs() -> None:
    tables = recorded("h200_first_trial")
    points = scaling_points_df(tables.runs, tables.requests)
    one_run = points[points["run_ids"].map(len) == 1].dropna(subset=["n"])
    own = accept_length_df(tables.requests).set_index("run_id")
    assert len(one_run) > 5
    for row in one_run.itertuples():
        assert row.accept_length == pytest.approx(own.loc[row.run_ids[0], "accept_length"])
        assert row.low == pytest.approx(own.loc[row.run_ids[0], "low"], abs=0.02)


def test_runs_of_one_setting_are_pooled_at_the_lowest_concurrency() -> None:
    first, again, busy = (speculative(name, **SIZED) for name in ("first", "again", "busy"))
    points = scaling_points_df(
        runs(first, again, busy | {"max_concurrency": 8}),
        requests(
            {"run_id": "first", "steps_histogram": [1]},
            {"run_id": "again", "steps_histogram": [0, 3]},
            {"run_id": "busy", "steps_histogram": [0, 0, 5]},
        ),
    )
    assert points.iloc[0]["accept_length"] == pytest.approx((1 + 6) / 4)
    assert points.iloc[0]["run_ids"] == ("first", "again")
    assert points.iloc[0]["max_concurrency"] == 1
    assert len(points) == 1


def test_a_run_known_from_notes_keeps_its_range() -> None:
    ranged = {"accept_length": 2.25, "accept_length_low": 2.0, "accept_length_high": 2.5, "origin": "noted"}
    row = point(speculative(**SIZED | ranged), {"run_id": "other", "steps_histogram": [1]})
    assert (row["accept_length"], row["low"], row["high"]) == (2.25, 2.0, 2.5)
    assert row["interval"] == "range in the source"
    assert row["origin"] == "noted"


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"drafter_target": "Kimi-K2", "target": "Kimi-K2.5"}, "made for Kimi-K2, served on Kimi-K2.5"),
        ({"training_samples": None}, "training size not stated"),
        ({"training_samples": 0}, "not trained"),
        ({"accept_length": None}, "accept length not measured"),
        ({"drafter_target": None}, ""),
    ],
)
def test_why_a_point_belongs_to_no_fit(values: dict[str, object], note: str) -> None:
    row = point(speculative(**SIZED | {"accept_length": 2.0} | values), {"run_id": "other", "steps_histogram": [1]})
    assert row["fit_note"] == note


def test_forced_acceptance_is_no_point() -> None:
    points = scaling_points_df(runs(speculative(**SIZED, simulated_accept_length=2.5)), requests())
    assert points.empty
    assert "accept_length" in points


def test_drafters_share_the_resample_of_the_prompts() -> None:
    run_table, request_table = drafters(
        [{"name": name, "size": 500, "length": 2.0} for name in ("one", "two")], spread=20
    )
    del run_table
    same = resample_prompts(prompt_sums(request_table), [[("c", "one")], [("c", "two")]], 50, 0)
    assert same.shape == (50, 2)
    assert same[:, 0] == pytest.approx(same[:, 1])
    assert same[:, 0].std() > 0


def test_groups_hold_recipe_mix_prompts_and_shape_fixed() -> None:
    run_table, request_table = curve({500: 1.5, 1000: 1.6, 2000: 1.7})
    other, more_requests = curve({4000: 1.9}, recipe="another")
    table = pd.concat([other, run_table], ignore_index=True)
    points = scaling_points_df(table, pd.concat([request_table, more_requests], ignore_index=True))
    groups = scaling_groups(points)
    assert [name for name, _ in groups] == ["r", "another"]  # most sizes first
    assert [len(group) for _, group in groups] == [3, 1]


def test_no_points_no_groups() -> None:
    assert scaling_groups(scaling_points_df(runs(baseline()), requests())) == []


def test_the_size_of_the_draft_vocabulary_stays_with_the_point() -> None:
    row = point(speculative(**SIZED, draft_vocab_size=16_384), {"steps_histogram": [2, 1, 1]})
    assert row["draft_vocab_size"] == 16_384
