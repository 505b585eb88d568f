from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from nights import measure, put_aside_attempt

from workbench.analysis.since import since_last_good_df, worse_rows
from workbench.table import earlier
from workbench.table.earlier import earlier_measurements

SPEED, LENGTH = "decode speed", "accept length"


def since(campaign: Path) -> pd.DataFrame:
    return since_last_good_df(earlier_measurements(campaign), n_boot=400).set_index(["role", "figure"])


def verdicts(campaign: Path) -> dict[tuple[str, str], str]:
    return dict(since(campaign)["verdict"])


def test_nothing_to_compare_with_a_first_night(tmp_path: Path) -> None:
    assert since_last_good_df(earlier_measurements(measure(tmp_path / "c", 1))).empty


def test_the_same_night_twice(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2)
    found = since(campaign)
    assert list(found.index) == [("baseline", SPEED), ("speculative", SPEED), ("speculative", LENGTH)]
    assert set(found["verdict"]) == {"no change beyond noise"}
    assert found["ratio"].tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert set(found["good_at"]) == {"2026-01-01T00:00:00+00:00"}


def test_what_got_slower_is_worse_and_by_how_much(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2, seconds={"baseline": 1.0, "eagle3": 1.25})
    found = since(campaign)
    row = found.loc[("speculative", SPEED)]
    # 100 tokens in a quarter more time: 1 / 1.25.
    assert (row["verdict"], row["ratio"]) == ("worse", pytest.approx(0.8))
    assert row["low"] < 0.8 < row["high"] < 0.85
    # 12 prompts: 100 tokens over 1.055 s on average.
    assert row["before"] == pytest.approx(100 / 1.055, rel=1e-3)
    assert found.loc[("baseline", SPEED), "verdict"] == "no change beyond noise"
    assert len(worse_rows(since_last_good_df(earlier_measurements(campaign)))) == 1


def test_a_faster_night_is_better_and_the_next_one_is_held_to_it(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2, seconds=0.8)
    assert verdicts(campaign)[("speculative", SPEED)] == "better"


def test_a_night_that_was_worse_is_no_good_one(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2, seconds=1.25)
    measure(campaign, 3, seconds=1.25)
    row = since(campaign).loc[("speculative", SPEED)]
    # Still compared with the first night, though the second was the same.
    assert (row["verdict"], row["good_at"], row["num_good"]) == ("worse", "2026-01-01T00:00:00+00:00", 1)
    measure(campaign, 4)
    assert verdicts(campaign)[("speculative", SPEED)] == "no change beyond noise"
    assert since(campaign).loc[("speculative", SPEED), "good_at"] == "2026-01-01T00:00:00+00:00"


def test_nights_that_differ_by_themselves_are_noise(tmp_path: Path) -> None:
    """Passes of one night lie close together, nights do not: within the range of the good ones nothing got worse."""
    campaign = measure(tmp_path / "c", 1, seconds=1.0)
    measure(campaign, 2, seconds=0.95)
    assert verdicts(campaign)[("baseline", SPEED)] == "better"
    measure(campaign, 3, seconds=0.99)
    row = since(campaign).loc[("baseline", SPEED)]
    assert row["verdict"] == "no change beyond noise"


@pytest.mark.parametrize(("seconds", "verdict"), [(1.02, "no change beyond noise"), (1.04, "worse")])
def test_a_small_change_is_none_however_close_the_passes_lie(tmp_path: Path, seconds: float, verdict: str) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2, seconds=seconds)
    row = since(campaign).loc[("baseline", SPEED)]
    assert row["verdict"] == verdict and row["high"] < 1


def test_the_words_are_those_of_nights_not_of_arms(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2, seconds=1.25)
    said = since(campaign).loc[("speculative", SPEED), "reason"]
    assert "plain" not in said.replace("explain", "") and "speculative" not in said
    assert "exearlier" not in said


def test_drafts_that_hit_less_often(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1, steps=50)
    measure(campaign, 2, steps=60)
    row = since(campaign).loc[("speculative", LENGTH)]
    # 100 tokens over 51 steps on average, then over 61.
    assert (row["before"], row["value"]) == (pytest.approx(100 / 51), pytest.approx(100 / 61))
    assert row["verdict"] == "worse" and row["high"] < 1


def test_another_gpu_is_not_compared(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1, provenance={"gpu_name": "H100"})
    measure(campaign, 2, seconds=1.25, provenance={"gpu_name": "L4"})
    row = since(campaign).loc[("baseline", "speed")]
    assert (row["verdict"], row["reason"]) == ("not decidable", "measured on another GPU: L4, before H100")


def test_what_else_changed_is_said(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1, provenance={"versions": {"sglang": "0.5.14", "Python": "3.11.7"}})
    measure(campaign, 2, seconds=1.25, provenance={"versions": {"sglang": "0.5.16", "Python": "3.11.7"}})
    assert since(campaign).loc[("speculative", SPEED), "changed"] == "sglang 0.5.14 -> 0.5.16"


def test_an_attempt_that_failed_is_told(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    put_aside_attempt(campaign, 2)
    measured = list(earlier_measurements(campaign))
    assert [one.run_id for one in measured] == ["baseline-c1-aaaaaa", "eagle3-c1-bbbbbb"]
    assert measured[0].attempt == (
        "its figures are of 2026-01-01T00:00:00+00:00; the attempt of 2026-01-02T02:00:00+00:00 failed: out of memory"
    )
    assert since_last_good_df(measured).empty


def test_another_content_under_the_same_name_is_not_compared(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2)
    kept = next((campaign / "_kept").glob("eagle3*")) / "spec.json"
    kept.write_text(kept.read_text().replace('"speculative_num_steps": 3', '"speculative_num_steps": 5'))
    assert [one.run_id for one in earlier_measurements(campaign)] == ["baseline-c1-aaaaaa"]


def test_a_bad_level_does_not_become_good_by_lasting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (earlier.OLDEST, earlier.NEWEST) == (5, 60)  # as docs/nightly.md says
    monkeypatch.setattr(earlier, "NEWEST", 6)
    campaign = measure(tmp_path / "c", 1)
    for night in range(2, 16):
        measure(campaign, night, seconds=1.0 if night <= 5 else 1.25)
    measured = list(earlier_measurements(campaign))
    # What lies in between is left out; the first nights, the last ones and the one in place are not.
    assert [[str(at)[8:10] for at in one.runs["recorded_at"]] for one in measured] == [
        ["01", "02", "03", "04", "05", "09", "10", "11", "12", "13", "14", "15"]
    ] * 2
    row = since_last_good_df(measured, n_boot=400).set_index(["role", "figure"]).loc[("speculative", SPEED)]
    assert (row["verdict"], row["ratio"]) == ("worse", pytest.approx(0.8))
    assert (row["good_at"], row["num_good"]) == ("2026-01-05T00:00:00+00:00", 5)


def test_a_creep_is_named_when_it_adds_up(tmp_path: Path) -> None:
    """Each night takes 1.008 times as long: beside the five before it that is 1.008 ** 3, 2.4 %."""
    campaign = measure(tmp_path / "c", 1)
    for night in range(2, 7):
        measure(campaign, night, seconds=1.008 ** (night - 1))
    assert set(verdicts(campaign).values()) == {"no change beyond noise"}
    measure(campaign, 7, seconds=1.008**6)
    row = since(campaign).loc[("baseline", SPEED)]
    assert row["verdict"] == "worse" and row["reason"].startswith("little by little, since the first 5 good")
    # The first five took 1.008 ** 2 times as long on average.
    assert row["ratio"] == pytest.approx(1.008**-4, rel=1e-3)
    assert row["good_at"] == "2026-01-05T00:00:00+00:00"


def test_a_night_of_a_clock_that_was_ahead_is_named_and_not_used(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2, seconds=2.0, provenance={"recorded_at": "2027-05-05T00:00:00+00:00"})
    measure(campaign, 3)
    measured = list(earlier_measurements(campaign))
    assert measured[0].attempt == (
        "an earlier measurement dated 2027-05-05T00:00:00+00:00, after the newest one of 2026-01-03T00:00:00+00:00, "
        "not compared: a clock was ahead"
    )
    found = since(campaign)
    assert set(found["verdict"]) == {"no change beyond noise"} and set(found["num_good"]) == {1}
    assert found["ratio"].tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_passes_that_differ_by_less_than_a_percent_are_not_said_to_lie_0_percent_apart(tmp_path: Path) -> None:
    campaign = measure(tmp_path / "c", 1)
    measure(campaign, 2, seconds=1.25)
    said = since(campaign).loc[("baseline", SPEED), "reason"] or ""
    # The passes of `nights` lie 0.4 % apart.
    assert "new passes lie 0.4% apart, more than prompts explain" in said
