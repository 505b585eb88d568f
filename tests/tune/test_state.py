"""What a search reads from run folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from run_folders import write_campaign, write_run

from workbench.paths import recorded_dir
from workbench.store import read_campaign
from workbench.sweep import expand, find_campaign
from workbench.tune.state import Config, State, Visit, histogram_matrix, read_recorded, read_state

FOLDER = recorded_dir() / "h200_step_cost"


@pytest.fixture(scope="module")
def recorded() -> State:
    return read_recorded(FOLDER)


def test_every_recorded_configuration_is_there_with_its_visits(recorded: State) -> None:
    names = {config.name: config for config in recorded.configs}
    assert names["smollm2-135m-eagle3-s3-k4-n16-sim2.5-default"] == Config(
        "smollm2-135m-eagle3-s3-k4-n16-sim2.5-default", "default", "smollm2-135m-eagle3", 3, 4, 16, 2.5
    )
    assert recorded.loads == (1, 2, 4, 8, 16, 32, 64)
    # The baseline was measured before and after.
    assert [len(recorded.of("baseline-default", load)) for load in (1, 8)] == [2, 2]
    assert len(recorded.of("baseline-nograph", 1)) == 1


def test_a_visit_holds_the_passes_of_its_run(recorded: State) -> None:
    windows = json.loads((FOLDER / "baseline-default-c8-3b7c59" / "windows.json").read_text())
    first = recorded.of("baseline-default", 8)[0]
    assert first.speeds == pytest.approx([window["decode_tok_per_s"] for window in windows])
    assert first.log_speed == pytest.approx(np.log(sorted(first.speeds)[2]))
    assert first.pass_s == pytest.approx(np.mean([window["wall_s"] for window in windows]))


def test_acceptance_is_kept_by_prompt(recorded: State) -> None:
    (visit,) = recorded.of("smollm2-135m-eagle3-s3-k1-n4-default", 1)
    prompts, counts = histogram_matrix([visit])
    assert prompts == tuple(range(12))
    total = counts.sum(axis=0)
    # As the table of runs says: 1.559 (data/recorded/h200_step_cost, 3 steps, one at a time).
    assert total @ np.arange(1, 5) / total.sum() == pytest.approx(1.559, abs=0.001)


def test_forced_shapes_cannot_win_beside_real_ones(recorded: State) -> None:
    assert {config.name for config in recorded.candidates} == {
        "baseline-default",
        "smollm2-135m-eagle3-s3-k1-n4-default",
    }


def test_the_time_of_a_start_is_from_its_begin_to_the_end_of_its_last_run(recorded: State) -> None:
    spans: dict[str, list[str]] = {}
    for run in read_campaign(FOLDER).runs:
        if run.spec.server_id == "baseline-default":
            spans.setdefault("began", []).append(run.provenance.recorded_at or "")
            spans.setdefault("ended", []).append(run.status.finished_at or "")
    began, ended = min(spans["began"]), max(spans["ended"])
    assert (began[11:19], ended[:10]) == ("05:18:22", began[:10])
    hours, minutes, seconds = (int(part) for part in ended[11:19].split(":"))
    expected = hours * 3600 + minutes * 60 + seconds - (5 * 3600 + 18 * 60 + 22)
    key = next(visit.start for visit in recorded.of("baseline-default", 8))
    assert recorded.start_s[key] == expected


def test_a_plan_finds_its_runs_by_content_and_what_failed_is_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "h200_smollm2"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("_servers", "_checks"))
    real = "eagle3-smollm2-135m-eagle3-s3-k1-n4-c8-b4487c"
    status = json.loads((folder / real / "status.json").read_text())
    (folder / real / "status.json").write_text(json.dumps({**status, "status": "failed", "reason": "out of memory"}))
    plan = expand(find_campaign("h200_smollm2"))
    state = read_state(folder, plan)
    name = "eagle3-smollm2-135m-eagle3-s3-k1-n4"
    assert state.loads == (1, 8, 32)
    assert dict(state.given_up) == {(name, 8): "out of memory"}
    assert [len(state.of(name, load)) for load in state.loads] == [1, 0, 1]
    # The baseline again is the baseline; the one without graphs is of another group.
    assert len(state.of("baseline-default", 8)) == 2
    assert ("eagle-smollm2-135m-eagle3-s3-k1-n4", 8) in state.outside


def test_nothing_is_measured_of_a_campaign_that_was_never_begun(tmp_path: Path) -> None:
    state = read_state(tmp_path / "none", expand(find_campaign("quickstart")))
    assert (state.visits, state.loads, state.spent_s) == ((), (1,), 0)


def test_two_visits_are_the_same_only_if_they_are_one() -> None:
    assert Visit("a", 1, (1.0,)) != Visit("a", 1, (1.0,))


@pytest.mark.parametrize(("ended", "seconds"), [("yesterday", None), ("2026-01-05T10:01:30", 90.0), ("", None)])
def test_a_start_whose_end_is_no_time_has_none(tmp_path: Path, ended: str, seconds: float | None) -> None:
    folder = write_campaign(tmp_path / "c")
    times = {"provenance.json": {"origin": "measured", "source": "s", "recorded_at": "2026-01-05T10:00:00+00:00"}}
    status = {"status": "ok", "finished_at": ended}
    write_run(folder / "r", files={**times, "status.json": status})
    assert list(read_recorded(folder).start_s.values()) == ([] if seconds is None else [seconds])
