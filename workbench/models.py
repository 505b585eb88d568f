"""Where the models of a campaign are on this machine, and its prompts in the tokens of its target."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.chat import load_chat
from workbench.errors import MissingToolError, SpecError
from workbench.paths import under_root
from workbench.prompts import Prompt, prompt_set, run_name, with_token_ids
from workbench.sweep import CampaignSpec, Plan

SMOLLM2 = "smollm2-135m-instruct"
"""The one target that the embedded engine knows by name."""


def check_engine(campaign: CampaignSpec) -> None:
    """Refuse an engine that is not installed here; behind a launch prefix it may be anywhere.

    Raises
    ------
    MissingToolError
        With the command that installs it.
    """
    needed, how = ("torch", 'pip install "eagle3-workbench[reference]"')
    if campaign.engine == "sglang":
        needed, how = ("sglang", "conda env create -f environment.yml, or give launch_prefix, or --engine reference")
    if not campaign.launch_prefix and importlib.util.find_spec(needed) is None:
        raise MissingToolError(f"the {campaign.engine} engine needs the package {needed}", next_step=how)


def check_target(campaign: CampaignSpec) -> None:
    """Refuse a target that the engine cannot open. Behind a launch prefix its path may be of another machine.

    Raises
    ------
    SpecError
        When it is no folder, and no name that the engine could know.
    """
    path = campaign.target.model_path
    if path is None or campaign.launch_prefix or Path(under_root(path)).is_dir():
        return
    advice, known = f"name a Llama-type folder or {SMOLLM2}", path == SMOLLM2
    if campaign.engine == "sglang":
        advice = "give a model folder or a Hugging Face name: --set target.model_path=..."
        # owner/model, or a short name of old; anything else was meant as a path.
        known = path != SMOLLM2 and not (Path(path).is_absolute() or path.startswith(".") or path.count("/") > 1)
    if not known:
        only = ", which only the embedded engine knows by name" if path == SMOLLM2 else ""
        where = "target.model_path"
        raise SpecError(f"no folder {path!r} for the {campaign.engine} engine{only}", where=where, next_step=advice)


def located(plan: Plan) -> Plan:
    """The plan with model paths that a server can open: relative ones are under the project's folder.

    Raises
    ------
    SpecError
        When the embedded engine cannot open the target; for SGLang a plan may be made on another machine.
    """
    campaign = plan.campaign
    target = campaign.target.model_copy(update={"model_path": _model_folder(campaign)})
    drafters = {
        drafter.name: drafter.model_copy(update={"model_path": drafter.model_path and under_root(drafter.model_path)})
        for drafter in campaign.drafters
    }
    starts = [replace(start, drafter=drafters[start.drafter.name] if start.drafter else None) for start in plan.starts]
    campaign = campaign.model_copy(update={"target": target, "drafters": tuple(drafters.values())})
    return replace(plan, campaign=campaign, starts=tuple(starts))


def prompts_of(campaign: CampaignSpec) -> dict[str, Sequence[Prompt]]:
    """The campaign's prompts by what runs call their set.

    They have the token ids of their chat template where the target's tokenizer is here.

    Raises
    ------
    SpecError
        When a set has fewer prompts than are asked for.
    """
    return in_tokens(campaign, texts_of(campaign))


def texts_of(campaign: CampaignSpec) -> dict[str, Sequence[Prompt]]:
    """The same as their sets hold them, for a machine that has the sets and not the target.

    Raises
    ------
    SpecError
        As `prompts_of`.
    """
    found = {name: prompt_set(name).prompts for name in campaign.workload.prompt_sets}
    for name, wanted in campaign.workload.prompt_sets.items():
        if wanted > len(found[name]):
            what = f"{wanted} prompts are asked for, {name} has {len(found[name])}"
            raise SpecError(what, where="workload.num_prompts")
    return {run_name(name): prompts for name, prompts in found.items()}


def in_tokens(campaign: CampaignSpec, texts: Mapping[str, Sequence[Prompt]]) -> dict[str, Sequence[Prompt]]:
    """Prompts with the token ids of the chat template, where the target's tokenizer is here."""
    folder = Path(campaign.target.model_path or "")
    if not (folder / "tokenizer.json").is_file():
        return dict(texts)
    chat = load_chat(folder)
    return {
        name: with_token_ids(prompts, lambda text: chat.prompt_ids([{"role": "user", "content": text}]))
        for name, prompts in texts.items()
    }


def _model_folder(campaign: CampaignSpec) -> str | None:
    path = campaign.target.model_path
    if campaign.engine == "reference":
        check_target(campaign)
        if path == SMOLLM2 and not Path(under_root(path)).is_dir():
            from workbench.reference import smollm2

            return str(smollm2.smollm2_folder())
    return path and under_root(path)
