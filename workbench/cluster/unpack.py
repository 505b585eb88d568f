"""A start that was planned on another machine, with what this one has for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from workbench.errors import WorkbenchError
from workbench.models import check_engine, check_target, in_tokens, located
from workbench.packing import FromElsewhere
from workbench.preflight import check_campaign, refusals
from workbench.prompts import Prompt
from workbench.sweep import CampaignSpec, Plan

Texts = Mapping[str, Sequence[Prompt]]
TEXTS = TypeAdapter(dict[str, tuple[Prompt, ...]])
"""Prompts on their way, by what runs call their set, in the order of the campaign."""


def unpacked(plan: Plan, brought: FromElsewhere) -> tuple[Plan, Texts, str | None]:
    """The plan of one start with this machine's models, its prompts in tokens, and why it is refused here."""
    try:
        check_target(plan.campaign)
        check_engine(plan.campaign)
        plan = located(plan)
        texts = TEXTS.validate_json(brought.prompts.read_bytes())
        prompts = in_tokens(plan.campaign, texts)
    except WorkbenchError as error:
        return plan, {}, error.what if error.where is None else f"{error.where}: {error.what}"
    if brought.allow_refused:
        return plan, prompts, None
    checked = replace(plan, campaign=_with_sets(plan.campaign, texts, brought.prompts.parent))
    return plan, prompts, refusals(check_campaign(checked)).get(plan.starts[0].server_id)


def _with_sets(campaign: CampaignSpec, texts: Texts, folder: Path) -> CampaignSpec:
    """The campaign with prompt sets that are files here, for preflight looks into them."""
    paths = [folder / f"prompts-{number}.jsonl" for number in range(len(texts))]
    for path, prompts in zip(paths, texts.values(), strict=True):
        lines = (json.dumps({"text": prompt.text, "task": prompt.task}) for prompt in prompts)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    first, *more = zip(map(str, paths), campaign.workload.prompt_sets.values(), strict=True)
    changes = {"prompt_set": first[0], "more_prompt_sets": dict(more)}
    return campaign.model_copy(update={"workload": campaign.workload.model_copy(update=changes)})
