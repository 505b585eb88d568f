"""What a machine may read of a page: ``<page>.summary.json`` beside it, one object of the keys below.

`VERSION` is raised when a key changes its meaning or goes; a new key does not raise it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field

from workbench.provenance import Facts
from workbench.spec import Frozen, Scalar

SUMMARY_SUFFIX = ".summary.json"
VERSION = 1


class PageStatus(StrEnum):
    """``partial``: the notebook was stopped, or says that some input could not be used."""

    OK = "ok"
    PARTIAL = "partial"
    FAILED = "failed"


class Figure(Frozen):
    """One number of a page. ``low`` and ``high`` are its 95 % interval, or the range that ``interval`` names."""

    name: str
    value: float | None = None
    text: str | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    interval: str | None = None
    verdict: str | None = None
    reason: str | None = None
    campaign: str | None = None
    run: str | None = None
    label: str | None = None
    prompt_set: str | None = None
    max_concurrency: int | None = None
    origin: str | None = None
    source: str | None = None


class Change(Frozen):
    """A figure of a run beside its last good measurements; see `workbench.analysis.since`."""

    run: str
    label: str
    figure: str
    unit: str
    verdict: str
    role: str | None = None
    prompt_set: str | None = None
    max_concurrency: int | None = None
    value: float | None = None
    before: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    measured_at: str | None = None
    good_at: str | None = None
    num_good: int | None = None
    changed: str | None = None


class PageProvenance(Frozen):
    """Command, code, library versions, and SHA-256 (first 16 digits) of each input file or folder."""

    command: str
    code: str
    versions: dict[str, str] = Field(default_factory=dict)
    inputs: dict[str, str] = Field(default_factory=dict)
    parameters: dict[str, object] = Field(default_factory=dict)

    @classmethod
    def of(cls, facts: Facts, parameters: Mapping[str, object] | None = None) -> Self:
        return cls(
            command=facts.command,
            code=facts.code,
            versions=dict(facts.versions),
            inputs=dict(facts.inputs),
            parameters=dict(parameters or {}),
        )


class Summary(Frozen):
    """A page in short; the index is made from these.

    ``fault`` is what a diagnosis found; ``made_from`` is the fingerprint of everything that the page was made from,
    ``page_sha256`` (first 16 digits) that of the page itself, as it was built. ``since_last_good`` is missing where no
    run was measured before, ``not_verified`` says what nobody could check.
    """

    version: int = VERSION
    kind: Literal["report", "diagnosis"]
    title: str
    status: PageStatus
    finished_at: str
    reason: str | None = None
    answer: str | None = None
    headline: dict[str, Scalar] = Field(default_factory=dict)
    campaign: str | None = None
    campaign_title: str | None = None
    notebook: str | None = None
    duration_s: float | None = Field(default=None, ge=0, le=1e9)
    fault: Literal["found", "suspected", "none"] | None = None
    made_from: str | None = None
    page_sha256: str | None = None
    figures: tuple[Figure, ...] = ()
    figures_left_out: int = 0
    not_verified: tuple[str, ...] = ()
    since_last_good: tuple[Change, ...] | None = None
    provenance: PageProvenance | None = None

    @property
    def worse(self) -> tuple[Change, ...]:
        return tuple(change for change in self.since_last_good or () if change.verdict == "worse")
