"""`workbench check`: a campaign file, a run.yaml of SpecForge or a draft before a GPU is used, as text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from workbench.checkpoint import read_checkpoint
from workbench.errors import SpecError, UsageError
from workbench.preflight import CheckResult, Finding, Severity, check_campaign, check_draft
from workbench.preflight.text import counted, render_findings, render_result
from workbench.specforge import traps
from workbench.sweep import campaign_names, expand, find_campaign

NOTHING_IN_DRAFT = "No fault found in the draft checkpoint. Tensors' values, beyond d2t and t2d, are not checked."


def is_campaign(name: str) -> bool:
    """Whether a name is a campaign's and not a draft folder's.

    Raises
    ------
    SpecError
        When it is neither.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return True
    known = campaign_names()
    if name in known and not (path / "config.json").is_file():
        return True
    if path.is_dir():
        return False
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.55)
    hint = f"did you mean {near[0]!r}?" if near else f"campaign files are: {', '.join(known) or 'none'}"
    raise SpecError("neither a campaign nor a draft folder", where=name, next_step=hint)


def campaign_text(name: str, settings: Sequence[str]) -> tuple[str, bool]:
    """The findings of a campaign with a summary as the last line, and whether any of them is an error.

    Raises
    ------
    SpecError
        When the campaign file is invalid.
    """
    if traps.is_run_file(Path(name)):
        return _specforge_text(Path(name), settings)
    plan = expand(find_campaign(name, settings))
    findings = check_campaign(plan)
    touched = {start for finding in findings for start in finding.starts}
    clean = len(plan.starts) - len(touched)
    summary = f"{plan.campaign.name}: {len(plan.starts)} starts, {counted(findings)}" + (
        f"; nothing found for {clean} of the starts" if clean else ""
    )
    text = render_findings(findings, starts=len(plan.starts))
    return "\n".join(filter(None, (text, summary))), any(f.result.severity is Severity.ERROR for f in findings)


def _specforge_text(path: Path, settings: Sequence[str]) -> tuple[str, bool]:
    """The same of a run.yaml of SpecForge."""
    if settings:
        raise UsageError("goes with a campaign, and this is a run.yaml of SpecForge", where="--set")
    found = traps.findings(traps.read_run(path))
    summary = f"{path}: a run of SpecForge, {counted([Finding(result, ()) for result in found])}"
    return "\n".join([*map(render_result, found), summary]), any(f.severity is Severity.ERROR for f in found)


def check_files(
    draft: Path,
    *,
    target: Path | None,
    algorithm: str | None,
    context_length: int | None,
    version: str | None,
    tp_size: int | None,
) -> Sequence[CheckResult]:
    """Everything wrong with a draft checkpoint that its files show.

    Raises
    ------
    CheckpointError
        When a folder cannot be read.
    """
    return check_draft(
        read_checkpoint(draft),
        None if target is None else read_checkpoint(target),
        speculative_algorithm=algorithm,
        context_len=context_length,
        sglang_version=version,
        tp_size=tp_size,
    )


def render_checks(results: Sequence[CheckResult]) -> str:
    """One block a result; a sentence where there is none."""
    return "\n".join(map(render_result, results)) or NOTHING_IN_DRAFT
