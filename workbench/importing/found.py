"""What is known of one imported run, wherever it came from, and how it becomes the models of a run folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Literal

from workbench.attached import said_count, said_server, said_text
from workbench.files import as_text
from workbench.paths import slug
from workbench.provenance import without_secrets
from workbench.spec import (
    Drafter,
    Origin,
    Provenance,
    ReportedFigures,
    RunSpec,
    RunState,
    RunStatus,
    ServerConfig,
    SpecDecodeConfig,
    Target,
    Workload,
)

NOT_STATED = "not stated"
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\]+")
_CHAIN_METHODS = ("eagle", "eagle3", "mtp", "deepseek_mtp")
Engine = Literal["sglang", "reference", "vllm", "unknown"]


@dataclass(frozen=True, slots=True)
class Stated:
    """What the user says of all files of a command; it fills in what a file does not tell."""

    target: str | None = None
    prompts: str | None = None
    concurrency: int | None = None
    speculative: bool | None = None
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The file that a run comes from, and the place in it.

    ``digest`` is of the result itself (of a log: of its text), whatever else the file holds. ``identity`` stays as it
    is when a log grows.
    """

    tool: str
    file: Path
    digest: str
    identity: str
    where: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}, {self.where}" if self.where else str(self.file)

    @property
    def text(self) -> str:
        place = f", {self.where}" if self.where else ""
        return as_text(f"{self.tool}: {self.file.name}{place} (SHA-256 {self.digest})")


@dataclass(frozen=True, slots=True)
class Found:
    """One run. ``speculative`` is ``None`` where neither the file nor the user tells the arm."""

    source: Source
    engine: Engine
    speculative: bool | None
    model: str | None = None
    draft: str | None = None
    draft_name: str | None = None
    decode: SpecDecodeConfig = field(default_factory=SpecDecodeConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    workload: Workload = field(default_factory=lambda: Workload(prompt_set=NOT_STATED))
    figures: ReportedFigures | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    recorded_at: str | None = None
    unfinished: str | None = None
    server_info: Mapping[str, object] | None = None
    log: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def drafter(self) -> Drafter | None:
        if not self.speculative or not self.draft:
            return None
        return Drafter(name=self.draft_name or slug(_last(self.draft)), model_path=clean(self.draft))

    @property
    def arm(self) -> str:
        """What serves, in short: ``baseline``, ``eagle3-DRAFT-s3-k1-n4``."""
        if not self.speculative:
            return "baseline"
        shape = (
            ("s", self.decode.speculative_num_steps),
            ("k", self.decode.speculative_eagle_topk),
            ("n", self.decode.speculative_num_draft_tokens),
        )
        parts = [(self.decode.speculative_algorithm or "speculative").lower(), self.drafter and self.drafter.name]
        parts += [f"{letter}{count}" for letter, count in shape if count is not None]
        return slug("-".join(part for part in parts if part))

    def spec(self, campaign: str) -> RunSpec:
        """The run as asked for; its name ends in the identity of its result, so it is imported once."""
        load, drafter = self.workload, self.drafter
        at_once = "unknown load" if load.max_concurrency is None else f"{load.max_concurrency} at once"
        origin = self.source.identity
        server_id = self.arm if self.log is None else f"{self.arm}-{origin}"
        prompts = "" if load.prompt_set.startswith(NOT_STATED) else slug(load.prompt_set, max_length=40)
        load_name = "c-unknown" if load.max_concurrency is None else f"c{load.max_concurrency}"
        name = "-".join(part for part in (self.arm, prompts, load_name, origin) if part)
        return RunSpec(
            campaign=campaign,
            run_id=name,
            server_id=server_id,
            engine=self.engine,
            sglang_version=self.versions.get("sglang"),
            target=Target(name=named(_last(self.model or "") or NOT_STATED), model_path=clean(self.model)),
            drafter=drafter.name if drafter else None,
            spec_decode=self.decode if self.speculative else None,
            server=self.server,
            workload=load,
            # Each tool measures in its own way: results are compared within one tool and one target.
            baseline_group=slug("-".join(part for part in (self.source.tool, _last(self.model or "")) if part)),
            label=f"{self.arm}, {at_once}",
            notes="; ".join(self.notes) or None,
            drafter_path=drafter.model_path if drafter else None,
        )

    def provenance(self, machine: str | None) -> Provenance:
        return Provenance(
            origin=Origin.IMPORTED,
            source=self.source.text,
            recorded_at=self.recorded_at,
            machine=machine,
            versions=dict(self.versions),
        )

    def status(self, log_file: str | None) -> RunStatus:
        state = RunState.INTERRUPTED if self.unfinished else RunState.OK
        return RunStatus(status=state, reason=self.unfinished, log_file=log_file)


def said_decode(info: Mapping[str, object]) -> SpecDecodeConfig:
    """The speculative settings that an SGLang server states of itself."""
    return SpecDecodeConfig(
        speculative_algorithm=said_text(info, "speculative_algorithm"),
        speculative_num_steps=said_count(info, "speculative_num_steps"),
        speculative_eagle_topk=said_count(info, "speculative_eagle_topk"),
        speculative_num_draft_tokens=said_count(info, "speculative_num_draft_tokens"),
    )


def of_server(found: Found, info: Mapping[str, object]) -> Found:
    """The same with what an SGLang server says of itself, which is the best source there is."""
    version = said_text(info, "version")
    return replace(
        found,
        engine="sglang",
        speculative=said_text(info, "speculative_algorithm") is not None,
        model=said_text(info, "model_path") or found.model,
        draft=said_text(info, "speculative_draft_model_path") or found.draft,
        decode=said_decode(info),
        server=said_server(info, ServerConfig()),
        versions={**found.versions, **({"sglang": clean(version) or version} if version else {})},
    )


def chain(method: str, draft_tokens: int | None) -> SpecDecodeConfig:
    """vLLM's chain of k tokens in SGLang's words: k steps, topk 1, k + 1 draft tokens with the root."""
    if draft_tokens is None or draft_tokens < 1 or method.lower() not in _CHAIN_METHODS:
        return SpecDecodeConfig(speculative_algorithm=clean(method))
    return SpecDecodeConfig(
        speculative_algorithm=clean(method.upper()),
        speculative_num_steps=draft_tokens,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=draft_tokens + 1,
    )


def named(text: str) -> str:
    """Outside text as a name of ours: one line, no separators of paths, not too long."""
    cleaned = _FORBIDDEN.sub("-", clean(text) or "").strip(" .")[:150]
    return cleaned or NOT_STATED


def clean(text: str | None) -> str | None:
    """Outside text without secrets and without what no file can hold."""
    return None if text is None else without_secrets(as_text(text))[:500]


def _last(path: str) -> str:
    """The last part of a path or an address, cleaned before it is cut: what is left of a secret would not look so."""
    return PurePath(without_secrets(as_text(path)).rstrip("/")).name
