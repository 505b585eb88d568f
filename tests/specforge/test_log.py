"""What SpecForge prints, real and arbitrary."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

from specforge_files import FIXTURES

from workbench.specforge.log import Log, Point, listed, number, numbered, ordered, parse


def test_a_real_training() -> None:
    log = parse((FIXTURES / "train.log").read_text())
    assert [point.step for point in log.steps] == [2, 4, 6, 8, 10, 12]
    assert [point.step for point in log.evaluations] == [4, 8, 12]
    assert (log.unread, log.error) == (0, None)
    last = log.steps[-1]
    assert numbered(last, "acc_") == (0.1875, 0.21875, 0.09375)
    assert number(last, "loss") == 5.47634220123291
    assert number(last, "lr") == 4.422989402888078e-06
    assert number(last, "perf/global_samples_per_second") == 0.11317431439615323
    evaluation = log.evaluations[-1]
    assert listed(evaluation, "eval/per_position_acc") == (0.140625, 0.140625, 0.078125)
    assert number(evaluation, "eval/simulated_acc_len") == 0.16194534301757812


def test_without_a_tracker_names_have_no_prefix_and_lists_are_lists() -> None:
    log = parse(
        "step 50: {'loss': 3.5, 'acc_0': 0.5}\nstep 50: {'eval/avg_loss': 2.0, 'eval/per_position_acc': [0.5, 0.25]}"
    )
    assert log.steps == [Point(50, {"loss": 3.5, "acc_0": 0.5})]
    assert listed(log.evaluations[0], "eval/per_position_acc") == (0.5, 0.25)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("no_index.log", "FileNotFoundError: No index.json file found in /models/smollm2-135m-instruct"),
        (
            "fsdp_cpu.log",
            "RuntimeError: FSDP needs a non-CPU accelerator device, but no accelerator device is detected.",
        ),
    ],
)
def test_real_failures(name: str, error: str) -> None:
    log = parse((FIXTURES / name).read_text())
    assert (log.steps, log.error) == ([], error)


def test_figures_behind_a_progress_bar() -> None:
    text = "Training:  10%|█ | 1/10 [00:01<00:09]\rTraining:  20%|██| 2/10step 2: {'loss': 1.0}\rTraining:"
    assert parse(text).steps == [Point(2, {"loss": 1.0})]


def test_every_process_prints_and_a_later_start_takes_back() -> None:
    lines = ["step 10: {'loss': 3.0}"] * 2 + ["step 20: {'loss': 2.0}"] * 2 + ["step 30: {'loss': 1.0}"]
    again = ["step 20: {'loss': 2.5}"]
    assert [(p.step, p.values["loss"]) for p in parse("\n".join(lines + again)).steps] == [(10, 3.0), (20, 2.5)]


def test_a_rewound_timeline_takes_back_its_steps() -> None:
    text = "step 10: {'loss': 3.0}\nstep 20: {'loss': 2.0}\nrewinding checkpoint timeline at step 15: deleting x"
    assert [point.step for point in parse(text).steps] == [10]


def test_an_error_before_a_new_start_is_over() -> None:
    text = "Traceback (most recent call last):\n  File x\nValueError: no\nstep 10: {'loss': 3.0}"
    assert parse(text).error is None


def test_lines_that_cannot_be_read_are_counted() -> None:
    log = parse("step 5: {'loss': \nstep 6: {'loss': tensor(1)}\nstep 7: {}\nthis step 8: of\nstep 9: {'loss': nan}")
    assert log.unread == 3
    assert number(log.steps[0], "loss") is None
    assert math.isnan(float(str(log.steps[0].values["loss"])))


def test_numbered_figures_end_at_the_first_gap() -> None:
    assert numbered(Point(1, {"acc_0": 0.5, "acc_2": 0.1}), "acc_") == (0.5,)


names = st.sampled_from(["loss", "train/acc_0", "eval/avg_loss", "lr", "x y"])
figures = st.dictionaries(names, st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.integers(0, 10**9), figures), max_size=8))
def test_what_is_printed_is_read(printed: list[tuple[int, dict[str, float]]]) -> None:
    """Of rising steps every figure comes back, bit by bit."""
    rising = sorted(dict(printed).items())
    log = parse("\n".join(f"step {step}: {values}" for step, values in rising))
    found = {point.step: point.values for point in [*log.steps, *log.evaluations]}
    assert found == {step: {k.removeprefix("train/"): v for k, v in values.items()} for step, values in rising}
    assert log.unread == 0


piece = st.sampled_from(
    [
        "step 1: {",
        "step 2: {'loss': 1.0}",
        "'acc_0': ",
        "[1.0, ",
        "]",
        "}",
        "\r",
        "\n",
        "nan",
        "-inf",
        "1e999",
        "Traceback (most recent call last):",
        "[rank0]: ValueError: x",
        "rewinding checkpoint timeline at step 2",
    ]
)


@given(st.lists(piece | st.text(max_size=8), max_size=30))
def test_any_text_gives_a_log(parts: list[str]) -> None:
    log = parse("".join(parts))
    assert isinstance(log, Log)
    for points in (log.steps, log.evaluations):
        steps = [point.step for point in points]
        assert steps == sorted(set(steps))
        assert all(point.values for point in points)


def test_a_hostile_line_takes_no_time() -> None:
    parse(
        "Traceback (most recent call last):\n" + "a." * 200_000 + "\nstep 1: {" + "'" * 200_000 + "\n" + "A" * 400_000
    )


@given(st.lists(st.integers(0, 20), max_size=40))
def test_points_rise_whatever_their_order(steps: list[int]) -> None:
    found, _ = ordered(Point(step, {"loss": float(place)}) for place, step in enumerate(steps))
    assert [point.step for point in found] == sorted({point.step for point in found})
    if steps:
        assert (found[-1].step, found[-1].values["loss"]) == (steps[-1], float(len(steps) - 1))
