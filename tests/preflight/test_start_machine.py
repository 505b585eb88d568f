from __future__ import annotations

import sys

import pytest
from fake_nvml import GIB, FakeGpu, FakeNvml

from workbench.preflight import Machine, Severity, this_machine


def test_a_program_that_is_not_there(campaigns) -> None:
    found = campaigns(launch_prefix=["no-such-program-here", "run"])["launch-prefix"]
    assert (found.severity, found.what) == (Severity.ERROR, "the program no-such-program-here is not found")
    assert "launch-prefix" not in campaigns(launch_prefix=[sys.executable])
    assert "launch-prefix" not in campaigns()


@pytest.mark.parametrize(
    ("stated", "installed", "prefix", "severity"),
    [
        ("0.5.14", "0.5.20", [], Severity.WARNING),
        ("0.5.14", "0.5.14", [], None),
        ("0.5.14", None, [], None),
        ("0.5.14", "0.5.20", ["docker"], None),
        (None, "0.5.20", [], Severity.NOTE),
        ("main", "0.5.20", [], Severity.WARNING),
    ],
)
def test_the_stated_version_and_the_installed_one(
    campaigns, stated: str | None, installed: str | None, prefix: list[str], severity: Severity | None
) -> None:
    found = campaigns(Machine((80 * GIB,), installed), sglang_version=stated, launch_prefix=prefix).get("version")
    assert (found and found.severity) == severity
    assert "version" not in campaigns(Machine(None, installed), sglang_version=stated, engine="reference")


@pytest.mark.parametrize(
    ("gpus", "severity"), [(None, Severity.NOTE), ((), Severity.NOTE), ((1,) * 3, Severity.ERROR), ((1,) * 4, None)]
)
def test_gpus_needed_and_present(campaigns, gpus: tuple[int, ...] | None, severity: Severity | None) -> None:
    machine = Machine(None if gpus is None else tuple(size * 80 * GIB for size in gpus), "0.5.14")
    found = campaigns(machine, server={"tp_size": 2, "dp_size": 2}).get("gpus")
    assert (found and found.severity) == severity
    assert "gpus" not in campaigns(machine, engine="reference")


def test_this_machine_is_what_nvml_and_the_installed_packages_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    FakeNvml([FakeGpu(), FakeGpu()]).install(monkeypatch)
    assert this_machine().gpu_memory_bytes == (140 * GIB,) * 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert this_machine().gpu_memory_bytes == (140 * GIB,)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert this_machine() == Machine(None, None)
