"""Campaign files found by name, read, changed by ``key=value`` and checked; a fault names file, line and key."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from workbench.errors import SpecError
from workbench.files import is_file, read_small
from workbench.paths import campaigns_dir
from workbench.plain import NO_YAML, Reader, TooMuch, from_yaml, read, refuse_growth
from workbench.spec import Drafter, ServerConfig, Target
from workbench.sweep.campaign_file import CampaignSpec, CampaignWorkload, SweepBlock, did_you_mean
from workbench.trained import drafters_in, filled, is_trained

_EXAMPLES = "see data/campaigns/ for examples"
# What to do about the faults that pydantic finds most often.
_NEXT = {
    "missing": "add it; see data/campaigns/ for examples",
    "int_parsing": "give a whole number",
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "bool_type": "give true or false",
    "float_parsing": "give a number",
    "bool_parsing": "give true or false",
    "string_pattern_mismatch": "give a name without slashes and control characters",
}
_ROOMS: Mapping[str, Any] = {"workload": CampaignWorkload, "server": ServerConfig, "target": Target}


def read_campaign_file(path: Path) -> CampaignSpec:
    """Read and check a campaign file.

    Raises
    ------
    SpecError
        With the line and the nearest known name for the first fault.
    """
    return parse_campaign(_text(path), name=str(path))


def _text(path: Path) -> str:
    try:
        return read_small(path).decode()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise SpecError(
            f"cannot be read ({said})", where=path, next_step="check the path and its permissions"
        ) from error


def parse_campaign(text: str, *, name: str) -> CampaignSpec:
    """A campaign from YAML text; ``name`` is what messages call it, with the line."""
    return _campaign(*_content(text, name), name)


def _content(text: str, name: str) -> tuple[Any, Any]:
    """What a text holds, and the tree that knows its lines."""
    try:
        refuse_growth(text)
        tree = yaml.compose(text, Loader=Reader)
        _refuse_twice(tree, name)
        return read(text), tree
    except TooMuch as error:
        raise SpecError(error.what, where=f"{name}:{error.line}", next_step=_EXAMPLES) from error
    except NO_YAML as error:
        raise _no_yaml(error, name) from error


def _campaign(content: Any, tree: Any, name: str) -> CampaignSpec:
    """A campaign from plain values; ``tree`` is ``None`` where nobody wrote these lines."""
    if not isinstance(content, dict):
        raise SpecError("not a mapping of settings", where=name, next_step=_EXAMPLES)
    try:
        # Strict: true or "3" where a number belongs is a slip of the pen, not a 1 or a 3.
        campaign = CampaignSpec.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        raise _fault(error, tree, name) from error
    except TypeError as error:  # a key that is a date, say
        raise SpecError(f"a name of a setting is no text ({error})", where=name) from error
    return with_trained(campaign)


def with_trained(campaign: CampaignSpec) -> CampaignSpec:
    """The campaign with the drafters of its training folders, and what those say of drafters that it describes.

    Raises
    ------
    InputError
        When a training folder holds something else than a training leaves.
    """
    sets = campaign.workload.prompt_sets if _trained_paths(campaign) else ()
    workloads = [campaign.workload.at(1, name) for name in sets]
    drafters = [filled(drafter, campaign.target, workloads) for drafter in campaign.drafters]
    if campaign.drafters_from is not None:
        named = {drafter.name for drafter in drafters}
        found = drafters_in(campaign.drafters_from, campaign.target, workloads)
        drafters += [drafter for drafter in found if drafter.name not in named]
    return campaign.model_copy(update={"drafters": tuple(drafters)})


def _trained_paths(campaign: CampaignSpec) -> bool:
    return campaign.drafters_from is not None or any(is_trained(drafter.model_path) for drafter in campaign.drafters)


def _refuse_twice(node: Any, name: str) -> None:
    """Of a setting that is given twice, YAML would silently take the last."""
    seen: set[str] = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else []:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise SpecError(f"{key.value!r} is set twice", where=_place(name, key), next_step="keep one of them")
        seen.add(str(key.value))
    if isinstance(node, yaml.CollectionNode):
        for child in node.value:
            _refuse_twice(child[1] if isinstance(child, tuple) else child, name)


def _no_yaml(error: Exception, name: str) -> SpecError:
    """The line and what stands there wrongly, of what PyYAML says over several lines."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return SpecError(f"not YAML ({' '.join(str(error).split())})", where=name, next_step=_EXAMPLES)
    what = " ".join(str(getattr(error, "problem", "") or "").split())
    hint = "indent with spaces, not tabs" if "\\t" in what else f"look at this line and the one before; {_EXAMPLES}"
    return SpecError(f"not YAML: {what}", where=f"{name}:{mark.line + 1}", next_step=hint)


def _place(name: str, mark: Any) -> str:
    return f"{name}:{mark.start_mark.line + 1}"


def _fault(error: ValidationError, tree: Any, name: str) -> SpecError:
    # A misspelt name is the cause of the "required" that it leaves behind.
    fault = min(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    path = tuple(fault["loc"])
    line = _line_of(tree, path)
    where = f"{name}:{line}" if line else name
    field = ".".join(str(part) for part in path)
    if fault["type"] == "extra_forbidden":
        near = _nested(str(path[-1])) if len(path) == 1 else []
        names = _names_at(path[:-1])
        near = near or difflib.get_close_matches(str(path[-1]), names, n=1, cutoff=0.5)
        hint = did_you_mean(near).removeprefix("; ") or f"settings here are: {', '.join(names)}"
        return SpecError(f"unknown setting {field!r}", where=where, next_step=hint)
    return SpecError(f"{field or 'the campaign'}: {fault['msg']}", where=where, next_step=_next(fault))


def _next(fault: Mapping[str, Any]) -> str:
    """What to do about a fault: what the message itself does not say."""
    hint = _NEXT.get(fault["type"])
    return hint or f"change it; {_EXAMPLES}"


def _nested(name: str) -> list[str]:
    """Where a setting lies that was given at the top by its own name alone."""
    return [f"{room}.{name}" for room, model in _ROOMS.items() if name in model.model_fields]


def _names_at(path: Sequence[int | str]) -> list[str]:
    """Names of the model that a path leads to, for suggestions."""
    model: Any = CampaignSpec
    for part in path:
        model = {**_ROOMS, "drafters": Drafter, "sweep": SweepBlock}.get(str(part), model)
    return list(model.model_fields)


def _line_of(node: Any, path: Sequence[int | str]) -> int | None:
    """Line, from 1, of the key or item that a path leads to; of the nearest parent where there is none."""
    line = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == str(part)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def campaign_names() -> list[str]:
    """The campaigns of ``data/campaigns``."""
    return sorted(file.stem for file in campaigns_dir().glob("*.yaml"))


def find_campaign(name: str, settings: Sequence[str] = ()) -> CampaignSpec:
    """A campaign file by its name in ``data/campaigns`` or its path, with ``key=value`` changes.

    Raises
    ------
    SpecError
        When there is no such file, a change is no ``key=value``, or the outcome is no valid campaign.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = campaigns_dir() / f"{name}.yaml"
    if not is_file(path):
        there = campaign_names()
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.55)
        none = "none yet; copy one of the project's"
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(there) or none}"
        raise SpecError(f"no campaign file {name!r}", where=str(path), next_step=hint)
    campaign = read_campaign_file(path)
    if not settings:
        return campaign
    content, _ = _content(_text(path), str(path))
    for setting in settings:
        _set(content, setting)
    return _campaign(content, None, f"{path} with {', '.join(settings)}")


def _set(content: dict[str, Any], setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"{setting!r} is no change", where="--set", next_step='give key=value, such as "repeats=3"')
    try:
        plain = from_yaml(value)
    except ValueError as error:
        raise SpecError(f"{value!r} is no value ({' '.join(str(error).split())})", where=f"--set {key}") from error
    try:
        _put(content, key.strip().split("."), plain)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise SpecError(f"{key!r} leads nowhere in the file", where=f"--set {setting}") from error


def _put(content: Any, path: Sequence[str], value: object) -> None:
    for part in path[:-1]:
        content = content[int(part)] if isinstance(content, list) else content.setdefault(part, {})
    if isinstance(content, list):
        content[int(path[-1])] = value
    else:
        content[path[-1]] = value
