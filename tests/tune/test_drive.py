"""The command on the scripted engine: it searches, writes the answer, and goes on where it stopped."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from live_campaigns import play, starts, write_campaign, write_project
from model_folders import TARGET_CONFIG, ones, write_folder, zeros

from workbench.errors import SpecError
from workbench.paths import runs_dir
from workbench.store import read_campaign
from workbench.sweep import expand, find_campaign
from workbench.terminal import Lines
from workbench.tune import plan as plan_module
from workbench.tune.drive import ADAPTIVE, Request, dry_run, limit_s, passes_of, tune, visit_plan
from workbench.tune.plan import Step
from workbench.tune.state import Config, State, Visit, read_state

DRAFT = Path(__file__).parents[2] / "data" / "drafters" / "smollm2-135m-eagle3"
QUIET = Lines(quiet=True)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project", repeats=2, sweep=[{"speculative_num_steps": [1, 2, 3]}])
    play(monkeypatch, project)
    return project


def test_a_search_begins_with_what_tells_most_and_starts_nothing_in_a_dry_run(root: Path) -> None:
    text = dry_run(Request("small"))
    assert starts(root) == []
    assert [line.split(":")[0] for line in text.splitlines() if line[0].isdigit()][1:] == [
        "1. baseline-default at 1",
        "2. eagle3-d-s3-k1-n4 at 1",
        "3. eagle3-d-s1-k1-n2 at 1",
    ]
    assert text.startswith("4 configurations at 1 at once, 0 runs so far")


def test_a_control_that_preflight_refuses_is_no_candidate(root: Path) -> None:
    control = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
    drafters = [{"name": "d", "model_path": str(DRAFT)}]
    write_campaign(root, sweep=[{"speculative_num_steps": [1, 3]}, control], drafters=drafters)
    text = dry_run(Request("small"))
    assert text.startswith("3 configurations at 1 at once")
    (left_out,) = [line for line in text.splitlines() if line.startswith("left out: ")]
    assert left_out.startswith("left out: eagle-d-s3-k1-n4, --speculative-algorithm EAGLE with the EAGLE-3 draft class")


def test_where_all_speculation_is_refused_there_is_nothing_to_choose(root: Path) -> None:
    control = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
    write_campaign(root, sweep=[control], drafters=[{"name": "d", "model_path": str(DRAFT)}])
    with pytest.raises(SpecError, match="eagle-d-s3-k1-n4 is refused: --speculative-algorithm EAGLE"):
        tune(Request("small"), QUIET)


@pytest.mark.slow
def test_a_search_goes_on_where_it_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The scripted servers are as fast as each other; a search would try long to tell them apart.
    monkeypatch.setattr(plan_module, "MAX_VISITS", 2)
    # 0 minutes buy the one start whose price is not known.
    first = tune(Request("small", budget_minutes=0.0), QUIET)
    assert len(starts(root)) == 1
    answer = json.loads(first.path.read_text())
    assert [best["config"] for best in answer["best"]] == ["baseline-default"]
    assert answer["next"]["config"] == "eagle3-d-s3-k1-n4"
    assert first.exit_code == 1

    tune(Request("small"), QUIET)
    begun = len(starts(root))
    names = {run.spec.server_id for run in read_campaign(runs_dir() / "small").runs}
    assert {"baseline-default", "eagle3-d-s3-k1-n4", "eagle3-d-s1-k1-n2"} <= names

    again = tune(Request("small"), QUIET)
    assert len(starts(root)) == begun
    answer = json.loads(again.path.read_text())
    assert again.path == root / "data" / "runs" / "small" / "tune.json"
    assert answer["next"] is None
    assert answer["gpu_minutes"]["starts"] == begun
    assert answer["adaptive"] is None and not again.path.with_name(ADAPTIVE).exists()
    leader = answer["best"][0]["config"]
    assert answer["one_for_all"] == {"config": leader, "regret": {"1": 0.0}}
    assert list(answer["commands"]) == [leader]


@pytest.mark.parametrize(
    ("share", "minutes", "allowed_s"),
    [(0.5, None, 150.0), (0.5, 2.0, 120.0), (0.5, 60.0, 150.0), (0.0, None, 0.0), (None, None, math.inf)],
)
def test_a_budget_is_a_share_of_the_grid_and_the_smaller_of_two_holds(
    root: Path, share: float | None, minutes: float | None, allowed_s: float
) -> None:
    campaign = find_campaign("small")
    shapes = (Config("baseline-default"), *(Config(name, steps=3, draft_tokens=4) for name in ("a", "b", "c")))
    unknown = State(shapes, (1,))
    # Two starts of 60 s with two passes of 10 s each: the grid is 5 starts of 40 s and two passes, 300 s.
    visits = tuple(Visit(name, 1, (9.0, 9.0), pass_s=10.0, start=name, at=name) for name in ("a", "b"))
    known = State(shapes, (1,), visits, start_s={"a": 60.0, "b": 60.0})
    request = Request("small", budget_minutes=minutes, budget_share=share)
    assert limit_s(request, campaign, known) == pytest.approx(allowed_s)
    assert limit_s(request, campaign, unknown) == (math.inf if minutes is None else 60 * minutes)


def test_a_share_of_nothing_buys_the_one_start_whose_price_is_not_known(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(Request("small", budget_share=0.0), Lines())
    assert len(starts(root)) == 1
    assert "of 0.0 GPU minutes: eagle3-d-s3-k1-n4 would be next" in capsys.readouterr().err


def test_a_further_visit_has_a_folder_of_its_own(root: Path) -> None:
    campaign = find_campaign("small")
    plan, folder = expand(campaign), runs_dir() / "small"
    tune(Request("small", budget_minutes=0.0), QUIET)
    step = Step(Config("baseline-default"), (1,), "", confirms=True)
    visit = visit_plan(campaign, plan, step, folder)
    assert [start.server_id for start in visit.starts] == ["baseline-default-again"]
    (run,) = visit.starts[0].runs
    assert run.run_id.startswith("baseline-default-again-c1-")
    assert run.content_hash() == plan.starts[0].runs[0].content_hash()
    assert len(read_state(folder, plan).of("baseline-default")) == 1


def test_a_search_does_not_go_on_from_runs_of_other_weights(root: Path) -> None:
    target = write_folder(root / "models" / "t", TARGET_CONFIG, {"w": ones(8)})
    request = Request("small", (f"target.model_path={target}",), budget_minutes=0.0)
    tune(request, QUIET)
    assert "nothing would be started" not in dry_run(request)
    write_folder(target, TARGET_CONFIG, {"w": zeros(8)})
    with pytest.raises(SpecError, match=r"weights of the target than lie in .*1 of the finished runs, first base"):
        tune(request, QUIET)
    assert len(starts(root)) == 1
    assert "nothing would be started: " in dry_run(request)
    # One of the ways out that the error names.
    tune(replace(request, settings=(*request.settings, "name=other")), QUIET)
    assert len(starts(root)) == 2


def test_looking_takes_half_the_passes_and_deciding_all(root: Path) -> None:
    campaign = find_campaign("small", ["repeats=6"])
    assert passes_of(campaign, Step(Config("x"), (1,), "")) == 3
    assert passes_of(campaign, Step(Config("x"), (1,), "", confirms=True)) == 6
    assert passes_of(find_campaign("small", ["repeats=1"]), Step(Config("x"), (1,), "")) == 1


def test_several_prompt_sets_have_no_one_best(root: Path) -> None:
    with pytest.raises(SpecError, match="one prompt set"):
        dry_run(Request("small", ('workload.more_prompt_sets={"mt_bench": 2}',)))
