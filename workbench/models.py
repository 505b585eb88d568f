"""Where the models of a campaign are on this machine and whether they are as they were, and its prompts in tokens."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path, PurePath

from workbench.chat import load_chat
from workbench.errors import MissingToolError, SpecError
from workbench.hashes import weights_id
from workbench.paths import KEPT, under_root
from workbench.prompts import Prompt, prompt_set, run_name, with_token_ids
from workbench.spec import RunState
from workbench.store import run_folders, try_run
from workbench.sweep import CampaignSpec, Plan, Start

SMOLLM2 = "smollm2-135m-instruct"
"""The one target that the embedded engine knows by name."""
_OTHER_DISKS = frozenset({"ssh", "kubectl"})
"""Launch prefixes behind which a path need not mean the folder that it means here."""


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


# --- whether they are as they were -------------------------------------------------------------------------------


def weights_of(start: Start, campaign: CampaignSpec) -> dict[str, str]:
    """The `weights_id` of what a start serves, by ``target`` and ``drafter``; what cannot be read here has none."""
    paths = {} if _is_elsewhere(campaign) else _served_paths(start, campaign)
    found = {whose: weights_id(Path(path)) for whose, path in paths.items()}
    return {whose: known for whose, known in found.items() if known is not None}


def require_same_weights(folder: Path, plan: Plan, *, anew: Set[str] = frozenset()) -> None:
    """Raise what `changed_weights` finds.

    Raises
    ------
    SpecError
        Before anything is started or written.
    """
    changed = changed_weights(folder, plan, anew=anew)
    if changed is not None:
        raise changed


def changed_weights(folder: Path, plan: Plan, *, anew: Set[str] = frozenset()) -> SpecError | None:
    """Why a plan cannot go on in its campaign's folder: finished runs there were measured with other weights.

    Of these runs only those count whose target or drafter the plan serves too, and which say what they were measured
    with. ``anew`` are the ids of runs that are measured again in any case.
    """
    if _is_elsewhere(plan.campaign) or not folder.is_dir():
        return None
    planned = {path for start in plan.starts for path in _served_paths(start, plan.campaign).values()}
    now = functools.cache(weights_id)
    changed: dict[tuple[str, str], list[str]] = {}
    for path in run_folders(folder):
        run = try_run(path, [])
        if run is None or run.status.status is not RunState.OK or path.name in anew:
            continue
        for whose, model in _paths(run.spec.target.model_path, run.spec.drafter_path).items():
            then = (run.provenance.weights or {}).get(whose)
            if then is not None and model in planned and now(Path(model)) not in (None, then):
                changed.setdefault((whose, model), []).append(path.name)
    return _changed(folder, changed) if changed else None


def _changed(folder: Path, changed: Mapping[tuple[str, str], Sequence[str]]) -> SpecError:
    said = [
        f"measured with other weights of the {whose} than lie in {model} now: {len(runs)} of the finished runs, "
        f"first {runs[0]}"
        for (whose, model), runs in changed.items()
    ]
    advice = (
        "measure under another name, which keeps these (--set name=...), or measure anew: `workbench run --force` "
        f"moves the old folders of its runs to {KEPT}; those of others, by `workbench tune` say, have to be moved away"
    )
    return SpecError("; ".join(said), where=folder, next_step=advice)


def _is_elsewhere(campaign: CampaignSpec) -> bool:
    return bool(campaign.launch_prefix) and PurePath(campaign.launch_prefix[0]).name in _OTHER_DISKS


def _served_paths(start: Start, campaign: CampaignSpec) -> dict[str, str]:
    return _paths(campaign.target.model_path, start.drafter.model_path if start.drafter else None)


def _paths(target: str | None, drafter: str | None) -> dict[str, str]:
    return {whose: under_root(path) for whose, path in (("target", target), ("drafter", drafter)) if path}
