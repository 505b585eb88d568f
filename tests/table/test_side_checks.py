from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.paths import recorded_dir
from workbench.table.side_checks import SideChecks, read_side_checks

PASS = {"completed": 2, "duration_s": 1.5, "total_output_tokens": 20, "output_tok_per_s": 13.3}
CROSS = {
    "prompt_set": "mt_bench",
    "num_prompts": 2,
    "max_new_tokens": 10,
    "server": {"version": "0.5.14"},
    "passes": [{"max_concurrency": 1, "pass": 1, "workbench": PASS, "bench_serving": PASS}],
}


def written(campaign: Path, name: str, content: object) -> None:
    (campaign / "_checks").mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (campaign / "_checks" / name).write_text(text, encoding="utf-8")


def test_a_campaign_without_checks_has_none(tmp_path: Path) -> None:
    assert read_side_checks(tmp_path) == (SideChecks(), [])


def test_a_cross_check_is_read(tmp_path: Path) -> None:
    written(tmp_path, "cross_check.json", CROSS)
    checks, problems = read_side_checks(tmp_path)
    assert problems == [] and checks.cross_check is not None and checks.router is None
    (only,) = checks.cross_check.passes
    assert (only.max_concurrency, only.workbench.total_output_tokens) == (1, 20)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "not used: the whole: Invalid JSON"),
        ({**CROSS, "passes": []}, "not used: passes: Tuple should have at least 1 item"),
        ('{"prompt_set": "a", "num_prompts": 1, "max_new_tokens": 1, "passes": [NaN]}', "not used: "),
        ([], "not used: the whole"),
        ("x" * (5 << 20), "larger than 4 MiB; not used"),
    ],
)
def test_a_damaged_file_is_said_and_the_others_are_used(tmp_path: Path, content: object, what: str) -> None:
    written(tmp_path, "cross_check.json", content)
    written(tmp_path, "router.json", {"noise": {"16": {"passes": 3, "experts": 109.5}}})
    checks, (problem,) = read_side_checks(tmp_path)
    assert checks.cross_check is None and problem.what.startswith(what)
    assert problem.where.endswith("_checks/cross_check.json")
    assert checks.router is not None and checks.router.noise[16].experts == 109.5


def test_the_recorded_checks_are_read() -> None:
    checks, problems = read_side_checks(recorded_dir() / "h200_step_cost")
    assert problems == [] and checks.cross_check is not None and checks.step_profile is not None
    assert len(checks.cross_check.passes) == 8
    # 40 steps in which the GPU worked 2.23 of 7.67 ms
    assert (round(checks.step_profile.gpu_busy_ms, 2), round(checks.step_profile.cycle_ms, 2)) == (2.23, 7.67)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("router.json", {"nosie": {"1": {"passes": 1, "experts": 8}}}, "neither noise nor plain"),
        ("router.json", {"noise": {"9" * 30: {"passes": 1, "experts": 8}}}, "noise"),
        (
            "step_profile.json",
            {"steps": 1, "cycle_ms": 7.7, "gpu_busy_ms": 99, "kernels_a_step": 5},
            "the GPU worked longer than the step took",
        ),
    ],
)
def test_values_that_cannot_be_are_named(tmp_path: Path, name: str, content: object, said: str) -> None:
    (tmp_path / "_checks").mkdir()
    (tmp_path / "_checks" / name).write_text(json.dumps(content))
    checks, (problem,) = read_side_checks(tmp_path)
    assert checks == SideChecks() and said in problem.what and "remove the file" in problem.what


def test_a_folder_in_place_of_a_check_is_named(tmp_path: Path) -> None:
    (tmp_path / "_checks" / "router.json").mkdir(parents=True)
    checks, (problem,) = read_side_checks(tmp_path)
    assert checks.router is None and "no file" in problem.what
