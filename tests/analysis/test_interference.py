from __future__ import annotations

import pytest
from analysis_tables import baseline, runs, speculative

from workbench.analysis.interference import interference_df, interference_words


def packed(run_id: str, **values: object) -> dict[str, object]:
    return speculative(run_id, **{"server_id": "s3", "places": 4, **values})


def alone(run_id: str, **values: object) -> dict[str, object]:
    return speculative(run_id, **{"server_id": "s3-alone", "places": 1, **values})


def test_runs_of_one_content_are_compared_load_by_load() -> None:
    table = interference_df(
        runs(
            packed("s3-c8-bbbbbb", max_concurrency=8, decode_tok_per_s=320.0),
            alone("s3-alone-c8-bbbbbb", max_concurrency=8, decode_tok_per_s=400.0),
            packed("s3-c1-aaaaaa", decode_tok_per_s=90.0),
            alone("s3-alone-c1-aaaaaa", decode_tok_per_s=100.0),
            # Another content, another campaign, one that failed, one whose company is not known.
            alone("s4-c1-cccccc", decode_tok_per_s=1.0),
            alone("s3-alone-c1-aaaaaa", campaign="d", decode_tok_per_s=1.0),
            alone("s3-again-c1-aaaaaa", status="failed", decode_tok_per_s=1.0),
            packed("s3-old-c1-aaaaaa", places=None, decode_tok_per_s=1.0),
        )
    )
    assert table[["server_id", "max_concurrency", "places"]].to_numpy().tolist() == [["s3", 1, 4], ["s3", 8, 4]]
    assert table["alone_tok_per_s"].tolist() == [100.0, 400.0]
    assert table["ratio"].tolist() == pytest.approx([0.9, 0.8])


def test_speeds_of_one_kind_are_compared() -> None:
    # Too few requests for a window in one of them: both from the first request to the last answer.
    table = interference_df(
        runs(
            packed("s3-c8-bbbbbb", decode_tok_per_s=320.0, output_tok_per_s=150.0),
            alone("s3-alone-c8-bbbbbb", output_tok_per_s=200.0),
        )
    )
    assert (table["packed_tok_per_s"].item(), table["ratio"].item()) == (150.0, 0.75)


def test_several_of_a_kind_count_by_their_median() -> None:
    table = interference_df(
        runs(
            packed("s3-c1-aaaaaa", decode_tok_per_s=50.0, places=3),
            packed("s3-again-c1-aaaaaa", decode_tok_per_s=70.0, places=8),
            alone("s3-alone-c1-aaaaaa", decode_tok_per_s=100.0),
        )
    )
    assert (table["ratio"].item(), table["places"].item()) == (pytest.approx(0.6), 8)


def test_the_sentence() -> None:
    assert interference_words(runs(baseline(places=1), speculative())) is None
    rows = (baseline(places=1), packed("s3-c1-aaaaaa", decode_tok_per_s=90.0), packed("s3-c8-bbbbbb", places=2))
    assert interference_words(runs(*rows)) == (
        "2 runs of 3 had neighbours, up to 4 starts at once; what that does to their speed was not measured "
        "(`--interference` does)."
    )
    assert interference_words(runs(*rows, alone("s3-alone-c1-aaaaaa", decode_tok_per_s=100.0))) == (
        "2 runs of 4 had neighbours, up to 4 starts at once; with neighbours a start reaches this share of its speed "
        "alone: 0.90 at concurrency 1."
    )
