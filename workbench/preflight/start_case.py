"""What the checks of a server start look at: its settings as the command line will have them, models, the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

from workbench.checkpoint import Checkpoint, read_checkpoint
from workbench.errors import CheckpointError
from workbench.gpu import open_gpus, usable_gpus
from workbench.paths import cache_dir, under_root
from workbench.preflight.case import architecture
from workbench.sglang_rules.flags import setting_key
from workbench.sglang_rules.versions import readable
from workbench.spec import Scalar, ServerConfig, SpecDecodeConfig
from workbench.sweep import CampaignSpec, Start, running_limit

Read = Callable[[Path], Checkpoint | CheckpointError]


@dataclass(frozen=True, slots=True)
class Machine:
    """What would serve. ``gpu_memory_bytes`` has an entry a usable GPU; ``None`` where none can be seen."""

    gpu_memory_bytes: tuple[int, ...] | None = None
    sglang_version: str | None = None


def this_machine() -> Machine:
    """The GPUs that may be used here, and the SGLang that is installed beside this package."""
    with open_gpus() as found:
        sizes = None if found is None else tuple(found.memory_total_bytes(gpu) or 0 for gpu in usable_gpus(found))
    try:
        version = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        version = None
    return Machine(sizes, version)


def reader() -> Read:
    """A function that reads each model folder once and returns what is wrong with it instead of raising."""

    @cache
    def read(folder: Path) -> Checkpoint | CheckpointError:
        try:
            return read_checkpoint(folder)
        except CheckpointError as error:
            return error

    return read


@dataclass(frozen=True)
class StartCase:
    """One server start. Whatever is not known is ``None``, and the checks that need it stay silent."""

    start: Start
    campaign: CampaignSpec
    machine: Machine
    read: Read

    @property
    def server(self) -> ServerConfig:
        return self.start.server

    @property
    def decode(self) -> SpecDecodeConfig | None:
        return self.start.decode

    @property
    def is_sglang(self) -> bool:
        return self.campaign.engine == "sglang"

    @property
    def version(self) -> str | None:
        """Of SGLang, as stated and where it can be read; the embedded engine has none."""
        return readable(self.campaign.sglang_version) if self.is_sglang else None

    @property
    def serves_here(self) -> bool:
        """Whether this looks like the machine that would serve."""
        return not self.campaign.launch_prefix and (not self.is_sglang or bool(self.machine.gpu_memory_bytes))

    @cached_property
    def flags(self) -> Mapping[str, Scalar]:
        """The campaign's own flags by the setting that each of them sets."""
        return {setting_key(name): value for name, value in self.server.flags.items()}

    def number(self, name: str) -> int | None:
        """A whole number among the settings; a flag of the campaign replaces the field."""
        value = self.flags.get(name, getattr(self.server, name, None))
        return value if type(value) is int else None

    @property
    def running_limit(self) -> int:
        return self.number("max_running_requests") or running_limit(self.start, self.campaign)

    @property
    def tp_size(self) -> int:
        return self.number("tp_size") or 1

    @property
    def dp_size(self) -> int:
        return self.number("dp_size") or 1

    @property
    def gpus_needed(self) -> int:
        return self.tp_size * self.dp_size if self.is_sglang else 0

    @property
    def attention_backend(self) -> str | None:
        value = self.flags.get("attention_backend", self.server.attention_backend)
        return value if isinstance(value, str) else None

    @property
    def environment(self) -> Mapping[str, str]:
        """The server's variables; behind a launch prefix only those that the campaign states."""
        return self.server.env if self.campaign.launch_prefix else {**os.environ, **self.server.env}

    @property
    def levels(self) -> tuple[int, ...]:
        """The concurrencies of the start's loads."""
        return tuple(run.workload.max_concurrency or 1 for run in self.start.runs)

    @property
    def algorithm(self) -> str | None:
        """As the command line has it: in upper case, EAGLE3 when not stated."""
        return None if self.decode is None else (self.decode.speculative_algorithm or "EAGLE3").upper()

    @property
    def target_folder(self) -> Path | None:
        return model_folder(self.campaign.target.model_path, self.campaign.engine)

    @property
    def draft_folder(self) -> Path | None:
        drafter = self.start.drafter
        return None if drafter is None else model_folder(drafter.model_path, self.campaign.engine)

    @property
    def target(self) -> Checkpoint | None:
        """The target where it is here and can be read."""
        return self._checkpoint(self.target_folder)

    @property
    def draft(self) -> Checkpoint | None:
        return self._checkpoint(self.draft_folder)

    @property
    def target_arch(self) -> str | None:
        return None if self.target is None else architecture(self.target.config)

    def _checkpoint(self, folder: Path | None) -> Checkpoint | None:
        found = None if folder is None else self.read(folder)
        return found if isinstance(found, Checkpoint) else None


def model_folder(path: str | None, engine: str) -> Path | None:
    """Where a model of a campaign lies on this machine: under the project, or converted before in the cache."""
    if not path:
        return None
    folder = Path(under_root(path))
    if not folder.is_dir() and engine == "reference":
        folder = cache_dir() / path
    return folder if folder.is_dir() else None
