"""A machine shared by several places that measure at once: which CPUs are whose, and how many places work."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath

MIN_CPUS = 2
"""A place needs one for its server and one for the client that drives it."""
_CPU = Path("/sys/devices/system/cpu")
_STARTED_ELSEWHERE = frozenset({"docker", "podman", "kubectl", "ssh", "srun"})


@dataclass(slots=True)
class Company:
    """How many places work, this one included: now, and at most since `begin`."""

    now: int = 1
    most: int = 1

    def begin(self) -> None:
        self.most = self.now

    def tell(self, places: int) -> None:
        self.now = places
        self.most = max(self.most, places)


def cpu_shares(places: int) -> tuple[frozenset[int], ...]:
    """Disjoint CPU sets of equal size for so many places, whole cores next to each other.

    Equal, so that no place is faster than another; what cannot be shared out evenly is left to the rest of the
    machine. Empty when there are fewer than `MIN_CPUS` for each.
    """
    return share_out(cores(my_cpus()), places)


def share_out(by_core: Mapping[tuple[int, int], Collection[int]], places: int) -> tuple[frozenset[int], ...]:
    """Whole cores, given by (package, core), for each place; empty when that leaves too few CPUs for one of them."""
    ordered = [frozenset(by_core[name]) for name in sorted(by_core)]
    each = len(ordered) // places
    shares = [frozenset[int]().union(*ordered[number * each : (number + 1) * each]) for number in range(places)]
    return tuple(shares) if min(map(len, shares)) >= MIN_CPUS else ()


def cores(cpus: Collection[int], root: Path = _CPU) -> dict[tuple[int, int], list[int]]:
    """CPUs by (package, core): two of one core are no two processors. Where Linux does not say, each is its own."""
    found: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(cpus):
        topology = root / f"cpu{cpu}" / "topology"
        package, core = 0, cpu
        with contextlib.suppress(OSError, ValueError):
            core = int((topology / "core_id").read_text())
            package = int((topology / "physical_package_id").read_text())
        found.setdefault((package, core), []).append(cpu)
    return found


def my_cpus() -> frozenset[int]:
    """CPUs that this process, and what it starts, may run on; empty where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def pin(cpus: Collection[int]) -> None:
    """Keep this process, with all threads that it has by now, and all that it starts on these CPUs."""
    if sys.platform == "linux" and cpus:
        os.sched_setaffinity(0, cpus)
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(int(thread.name), cpus)


def inherited(prefix: Sequence[str]) -> bool:
    """Whether a server behind this launch prefix stays on the CPUs of whoever starts it, as our children do."""
    return not prefix or PurePath(prefix[0]).name not in _STARTED_ELSEWHERE


def listed(cpus: Collection[int]) -> str | None:
    """As Linux writes CPU sets: ``0-3,8``; ``None`` for an empty one."""
    ordered = sorted(cpus)
    starts = [ordered[0], *(right for left, right in pairwise(ordered) if right != left + 1)] if ordered else []
    ends = [*(left for left, right in pairwise(ordered) if right != left + 1), *ordered[-1:]]
    return ",".join(_range(first, last) for first, last in zip(starts, ends, strict=True)) or None


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def room_for(places: int, gpus: Sequence[int], gpus_each: int) -> int:
    """So many of the places can have GPUs of their own; at least one, which then says what is missing."""
    return places if gpus_each == 0 else max(1, min(places, len(gpus) // gpus_each))
