"""A stand-in for the module pynvml: GPUs whose readings a test sets."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest

GIB = 1 << 30


class NVMLError(Exception):
    pass


@dataclass
class FakeGpu:
    used: int = GIB // 2
    power_mw: int | None = 150_000
    busy_percent: int = 40
    clock_mhz: int = 1980
    uuid: str = "GPU-0"
    holders: tuple[int, ...] = ()


@dataclass
class FakeNvml:
    gpus: list[FakeGpu] = field(default_factory=list)
    driver: bool = True
    opened: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = ModuleType("pynvml")
        functions = {name: getattr(self, name) for name in dir(self) if name.startswith("nvml")}
        for name, value in {**functions, "NVMLError": NVMLError, "NVML_CLOCK_SM": 1}.items():
            setattr(module, name, value)
        monkeypatch.setitem(sys.modules, "pynvml", module)

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> FakeGpu:
        if number >= len(self.gpus):
            raise NVMLError
        return self.gpus[number]

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(used=gpu.used, total=140 * GIB)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in gpu.holders]

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(gpu=gpu.busy_percent, memory=1)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        if gpu.power_mw is None:
            raise NVMLError
        return gpu.power_mw

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        assert kind == 1
        return gpu.clock_mhz
