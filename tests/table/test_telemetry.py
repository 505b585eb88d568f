"""Expected figures are worked out by hand: trapezoids between samples, cut at the ends of the windows."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.spec import LoadWindow
from workbench.table.telemetry import energy_j, gpu_row


def sample(t_s: float, power: float | None, gpu: int = 0, **more: object) -> dict[str, object]:
    return {"t_s": t_s, "gpu": gpu, "power_w": power, **more}


def window(started: float | None, wall: float, tokens: int = 100, repeat: int = 0) -> LoadWindow:
    return LoadWindow(repeat=repeat, wall_s=wall, completion_tokens=tokens, started_s=started)


# 100 W at 0 s, rising to 300 W at 2 s, back to 100 W at 4 s.
RAMP = [sample(0, 100.0), sample(2, 300.0), sample(4, 100.0)]


def row_of(samples: list[dict[str, object]], *windows: LoadWindow, gpus: tuple[int, ...] = (1,), shared: bool = False):  # type: ignore[no-untyped-def]
    return gpu_row(samples, windows, gpus_used=gpus, shared=shared)


@pytest.mark.parametrize(
    ("start", "end", "joules"),
    [
        (0.0, 4.0, 800.0),  # two trapezoids of (100 + 300) / 2 x 2
        (0.0, 2.0, 400.0),
        # 200 W at 1 s and at 3 s: (200 + 300) / 2 x 1, twice
        (1.0, 3.0, 500.0),
        # within one interval: 150 W at 0.5 s, 250 W at 1.5 s
        (0.5, 1.5, 200.0),
    ],
)
def test_energy_by_trapezoids_cut_at_the_ends(start: float, end: float, joules: float) -> None:
    assert energy_j(np.array([0.0, 2.0, 4.0]), np.array([100.0, 300.0, 100.0]), start, end) == pytest.approx(joules)


def test_ends_a_little_outside_the_samples_keep_the_last_power() -> None:
    # 0.5 s at 100 W before and after the 800 J
    assert energy_j(np.array([0.0, 2.0, 4.0]), np.array([100.0, 300.0, 100.0]), -0.5, 4.5) == pytest.approx(900.0)


@pytest.mark.parametrize(("start", "end"), [(-1.5, 2.0), (2.0, 5.5), (2.0, 2.0)])
def test_what_the_samples_do_not_cover_has_no_energy(start: float, end: float) -> None:
    assert energy_j(np.array([0.0, 2.0, 4.0]), np.array([100.0, 300.0, 100.0]), start, end) is None


def test_a_long_gap_within_a_window_has_no_energy_and_one_outside_does_no_harm() -> None:
    seconds, watts = np.array([0.0, 1.0, 2.0, 12.0, 13.0]), np.full(5, 100.0)
    assert energy_j(seconds, watts, 0.0, 2.0) == pytest.approx(200.0)
    assert energy_j(seconds, watts, 1.0, 12.5) is None


def test_values_that_are_no_numbers_are_counted_and_left_out() -> None:
    nan, samples = float("nan"), [*RAMP[:2], sample(1, 900.0), *RAMP[2:]]
    samples[2] |= {"power_w": nan, "sm_clock_mhz": "fast", "memory_used_bytes": None}
    row, faults = row_of([*samples, sample(nan, 500.0), {"t_s": 3.0}], window(0.0, 4.0))
    assert row["gpu_power_w"] == pytest.approx(200.0), "800 J in 4 s"
    assert faults == [
        "not a number from 0 in some of 6 samples, and left out: power_w (1), sm_clock_mhz (1), t_s (1), gpu (1)"
    ]
    assert row_of([{"t_s": nan, "gpu": nan}]) == (
        {},
        ["not a number from 0 in some of 1 samples, and left out: gpu (1), t_s (1)"],
    )


def test_what_a_gpu_does_not_say_is_no_fault() -> None:
    assert row_of([sample(0, None), sample(1, None, sm_clock_mhz=None)], window(0.0, 1.0))[1] == []


def test_energy_a_token_over_all_windows() -> None:
    row, faults = row_of(RAMP, window(0.0, 1.0, 50), window(1.0, 2.0, 150, repeat=1))
    # (100 + 200) / 2 x 1 = 150 J and 500 J, over 200 tokens in 3 s
    assert row["energy_j_per_tok"] == pytest.approx(650 / 200)
    assert row["gpu_power_w"] == pytest.approx(650 / 3)
    assert faults == []


def test_the_gpus_of_a_server_are_added_up() -> None:
    both = [*RAMP, *(sample(t, 50.0, gpu=1) for t in (0.0, 2.0, 4.0))]
    row, faults = row_of(both, window(0.0, 4.0), gpus=(2,))
    assert row["energy_j_per_tok"] == pytest.approx((800 + 200) / 100)
    assert row["gpu_power_w"] == pytest.approx(250.0)
    assert faults == []


def test_clock_within_the_windows_and_memory_at_any_time() -> None:
    samples = [
        sample(0, 100.0, sm_clock_mhz=1000, memory_used_bytes=5e9),
        sample(2, 100.0, sm_clock_mhz=1500, memory_used_bytes=7e9),
        sample(3, 100.0, sm_clock_mhz=1700, memory_used_bytes=6e9),
        sample(9, 100.0, sm_clock_mhz=200, memory_used_bytes=9e9),
    ]
    row, _ = row_of(samples, window(1.5, 2.0))
    assert (row["gpu_sm_clock_mhz"], row["gpu_peak_memory_bytes"]) == (1600.0, 9e9)


def test_energy_that_is_not_the_server_s_is_not_computed_and_said() -> None:
    row, faults = row_of(RAMP, window(0.0, 4.0), gpus=(8, 64))
    assert "energy_j_per_tok" not in row
    assert faults == ["no energy is computed: 1 GPU was sampled, which is not how many the server has"]
    row, faults = row_of(RAMP, window(0.0, 4.0), shared=True)
    assert "energy_j_per_tok" not in row
    assert faults == ["no energy is computed: another server ran on the GPUs"]
    row, faults = row_of(RAMP, window(0.0, 9.0))
    assert faults == ["no energy is computed: its samples do not cover the windows"]


def test_what_is_not_known_gives_nothing() -> None:
    assert row_of([], window(0.0, 4.0)) == ({}, [])
    assert row_of(RAMP) == ({"gpu_peak_memory_bytes": None}, [])
    assert "energy_j_per_tok" not in row_of(RAMP, window(None, 4.0))[0]
    silent = [sample(t, None, memory_used_bytes=1e9) for t in (0.0, 2.0, 4.0)]
    row, faults = row_of(silent, window(0.0, 4.0))
    assert row["gpu_peak_memory_bytes"] == 1e9
    assert "energy_j_per_tok" not in row
    assert faults == []
    assert row_of(RAMP, window(0.0, 4.0, tokens=0))[0]["energy_j_per_tok"] is None


def test_samples_that_cannot_be_are_left_out() -> None:
    odd = [*RAMP, sample(1, float("nan")), sample(1, -5.0), sample(1, True), {"t_s": "x", "gpu": 0}, {"power_w": 9.0}]
    row, faults = row_of(odd, window(0.0, 4.0))
    assert row["energy_j_per_tok"] == pytest.approx(8.0)
    assert faults == ["not a number from 0 in some of 8 samples, and left out: power_w (3), t_s (2), gpu (1)"]
