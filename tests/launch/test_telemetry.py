from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from fake_nvml import GIB, FakeGpu, FakeNvml
from launching import wait_for

from workbench.gpu import open_gpus
from workbench.launch.telemetry import sampled


def lines(path: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_a_gpu_and_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([FakeGpu(), FakeGpu(used=3 * GIB, power_mw=701_500, busy_percent=97, clock_mhz=1755)])
    nvml.install(monkeypatch)
    path = tmp_path / "run" / "gpu.jsonl"
    began = time.monotonic() - 100
    with sampled(path, (1,), interval_s=0.02, since=began) as problems:
        assert wait_for(lambda: path.exists() and len(lines(path)) >= 3)
        nvml.gpus[1].power_mw = None
    assert problems == []
    assert nvml.opened == 0
    found = lines(path)
    expected = {"gpu": 1, "power_w": 701.5, "memory_used_bytes": 3 * GIB, "utilisation": 0.97, "sm_clock_mhz": 1755}
    times = [line.pop("t_s") or 0.0 for line in found]
    assert found[0] == expected
    # The last one is taken when the block has ended; what the GPU does not say is not made up.
    assert found[-1] == {**expected, "power_w": None}
    assert times == sorted(times) and 100 <= times[0] < times[-1] < 130


def test_all_gpus_when_none_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml([FakeGpu(), FakeGpu(), FakeGpu()]).install(monkeypatch)
    with sampled(tmp_path / "gpu.jsonl", interval_s=60):
        pass
    assert [line["gpu"] for line in lines(tmp_path / "gpu.jsonl")] == [0, 1, 2] * 2


@pytest.mark.parametrize("absent", ["package", "driver", "gpus", "asked"])
def test_without_a_gpu_there_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str) -> None:
    FakeNvml([] if absent == "gpus" else [FakeGpu()], driver=absent != "driver").install(monkeypatch)
    if absent == "package":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    with sampled(tmp_path / "gpu.jsonl", () if absent == "asked" else None, interval_s=0.01) as problems:
        time.sleep(0.05)
    assert problems == []
    assert list(tmp_path.glob("*.jsonl")) == []


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml([FakeGpu()]).install(monkeypatch)
    (tmp_path / "file").touch()
    reached = False
    with sampled(tmp_path / "file" / "gpu.jsonl", interval_s=0.01) as problems:
        reached = wait_for(lambda: bool(problems))
    assert reached
    assert problems[0].where == str(tmp_path / "file" / "gpu.jsonl")
    assert problems[0].what.startswith("GPU telemetry ended: ")


def test_what_a_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml([FakeGpu(uuid="GPU-7f", holders=(5, 6))]).install(monkeypatch)
    with open_gpus() as found:
        assert found is not None
        assert (found.count, found.names(), found.holders(0)) == (1, ("NVIDIA H200",), (5, 6))
        assert (found.number_of("GPU-7f"), found.number_of("GPU-8")) == (0, None)
        # A number that does not exist is answered like a GPU that says nothing.
        assert found.memory_used_bytes(9) is None
        assert found.sample(9).power_w is None


@pytest.mark.gpu
def test_a_real_gpu_says_something(tmp_path: Path) -> None:
    with sampled(tmp_path / "gpu.jsonl", (0,), interval_s=0.1):
        time.sleep(0.35)
    first = lines(tmp_path / "gpu.jsonl")[0]
    assert first["power_w"] is not None and first["power_w"] > 1
    assert first["memory_used_bytes"] is not None and first["memory_used_bytes"] > 0
