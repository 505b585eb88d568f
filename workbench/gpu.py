"""The GPUs of this machine through NVML (the package nvidia-ml-py); without a GPU or the package there is nothing."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One reading. ``utilisation`` is a fraction from 0 to 1; ``None`` where the GPU does not say."""

    power_w: float | None
    memory_used_bytes: int | None
    utilisation: float | None
    sm_clock_mhz: int | None


class Gpus:
    """Readings by the number that nvidia-smi shows. None of them raises; what cannot be read is ``None``."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    @property
    def count(self) -> int:
        return int(self._ask(self._nvml.nvmlDeviceGetCount) or 0)

    def names(self) -> tuple[str, ...]:
        return tuple(self._text(self._nvml.nvmlDeviceGetName, gpu) for gpu in range(self.count))

    def number_of(self, uuid: str) -> int | None:
        """The number of a GPU that is named by (the beginning of) its UUID."""
        uuids = (self._text(self._nvml.nvmlDeviceGetUUID, gpu) for gpu in range(self.count))
        return next((gpu for gpu, found in enumerate(uuids) if found.startswith(uuid)), None)

    def memory_used_bytes(self, gpu: int) -> int | None:
        memory = self._ask(lambda: self._nvml.nvmlDeviceGetMemoryInfo(self._handle(gpu)))
        return None if memory is None else int(memory.used)

    def memory_total_bytes(self, gpu: int) -> int | None:
        memory = self._ask(lambda: self._nvml.nvmlDeviceGetMemoryInfo(self._handle(gpu)))
        return None if memory is None else int(memory.total)

    def holders(self, gpu: int) -> tuple[int, ...]:
        """Ids of the processes that compute on a GPU."""
        found = self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle(gpu)))
        return tuple(int(process.pid) for process in found or ())

    def sample(self, gpu: int) -> GpuSample:
        nvml = self._nvml
        rates = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(self._handle(gpu)))
        power_mw = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(self._handle(gpu)))
        clock = self._ask(lambda: nvml.nvmlDeviceGetClockInfo(self._handle(gpu), nvml.NVML_CLOCK_SM))
        return GpuSample(
            power_w=None if power_mw is None else power_mw / 1000,
            memory_used_bytes=self.memory_used_bytes(gpu),
            utilisation=None if rates is None else rates.gpu / 100,
            sm_clock_mhz=None if clock is None else int(clock),
        )

    def _text(self, question: Callable[[Any], Any], gpu: int) -> str:
        found = self._ask(lambda: question(self._handle(gpu)))
        return found.decode() if isinstance(found, bytes) else str(found or "unknown")

    def _handle(self, gpu: int) -> Any:
        return self._nvml.nvmlDeviceGetHandleByIndex(gpu)

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except self._nvml.NVMLError:
            return None


@contextlib.contextmanager
def open_gpus() -> Iterator[Gpus | None]:
    """The GPUs, or ``None`` where there are none, no driver, or no nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield Gpus(pynvml)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def usable_gpus(found: Gpus | None, total: int | None = None) -> tuple[int, ...]:
    """Numbers of the GPUs that may be used: all, or those of ``CUDA_VISIBLE_DEVICES``, the first ``total`` of them."""
    stated = os.environ.get("CUDA_VISIBLE_DEVICES")
    if stated is None:
        count = found.count if found is not None else total or 0
        return tuple(range(count))[:total]
    numbers: list[int] = []
    for name in (part.strip() for part in stated.split(",")):
        number = int(name) if _NUMBER.fullmatch(name) else found.number_of(name) if found is not None and name else None
        if number is None:
            break  # as CUDA does: the rest of the list is not visible
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))[:total]
