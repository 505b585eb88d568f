"""What a run.yaml says, by the table of its version: faults, and values with the defaults that SpecForge takes."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.errors import Problem, UsageError
from workbench.specforge.schema import ATTENTION, BY_VERSION, CHAT_TEMPLATES, Key

KNOWN = tuple(BY_VERSION)
_CAPTURED = 3


def keys_of(version: str) -> Mapping[str, Key]:
    """The table of a version.

    Raises
    ------
    UsageError
        When it is not known here.
    """
    if version not in BY_VERSION:
        why = "its backward pass is broken (SpecForge PR 563)" if version == "0.1.0" else "its keys are not known here"
        raise UsageError(f"SpecForge {version}: {why}", next_step=f"use {' or '.join(KNOWN)}")
    return BY_VERSION[version]


def is_run(content: object) -> bool:
    """Whether a YAML file's content is a run of SpecForge and no campaign: a campaign has none of these sections."""
    if not isinstance(content, dict):
        return False
    model = content.get("model")
    return isinstance(model, dict) and "target_model_path" in model and isinstance(content.get("data"), dict)


def faults(content: Mapping[str, Any], version: str) -> list[Problem]:
    """Everything that SpecForge would refuse, as far as its schema and its rules for EAGLE-3 say."""
    found = [*_section(content, "", keys_of(version))]
    return found or [*_rules(content, version)]


def value(content: Mapping[str, Any], path: str, version: str) -> Any:
    """What a run uses for a key: as stated, as a number where it is one written as text, else the default."""
    key = keys_of(version)[path]
    node: Any = content
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
        if node is None:
            return key.default
    return _number(node, key.kind) if key.kind in ("int", "float") and _number(node, key.kind) is not None else node


# --- one key at a time -------------------------------------------------------------------------------------------


def _section(content: Mapping[str, Any], prefix: str, table: Mapping[str, Key]) -> Iterator[Problem]:
    known = {path[len(prefix) :]: key for path, key in table.items() if _is_child(path, prefix)}
    for name in content.keys() - known.keys():
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; {near[0]} is" if near else ""
        yield Problem(f"{prefix}{name}", f"no key of SpecForge's schema{hint}")
    for name, key in known.items():
        if name in content:
            yield from _value(content[name], prefix + name, key, table)
        elif key.required:
            yield Problem(prefix + name, "is missing")


def _is_child(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and "." not in path[len(prefix) :] and path != prefix


def _value(found: object, path: str, key: Key, table: Mapping[str, Key]) -> Iterator[Problem]:
    if found is None:
        if not key.optional:
            yield Problem(path, "is empty")
    elif key.kind == "section":
        yield from (
            _section(found, f"{path}.", table) if isinstance(found, Mapping) else [_not(path, found, "a section")]
        )
    elif key.kind == "sections" or key.kind.startswith("list"):
        yield from _list(found, path, key, table)
    elif key.kind == "bool":
        yield from () if isinstance(found, bool) else [_not(path, found, "true or false")]
    elif key.kind == "str":
        yield from _text(found, path, key)
    else:
        yield from _bounded(found, path, key)


def _list(found: object, path: str, key: Key, table: Mapping[str, Key]) -> Iterator[Problem]:
    if not isinstance(found, list):
        yield _not(path, found, "a list")
        return
    if key.filled and not found:
        yield Problem(path, "is empty")
    for item in found:
        if key.kind == "sections":
            yield from (
                _section(item, f"{path}[].", table) if isinstance(item, Mapping) else [_not(path, item, "a section")]
            )
        elif not isinstance(item, int if key.kind == "list[int]" else str) or isinstance(item, bool):
            yield _not(path, item, "a whole number" if key.kind == "list[int]" else "text")


def _text(found: object, path: str, key: Key) -> Iterator[Problem]:
    if not isinstance(found, str):
        yield _not(path, found, "text")
    elif key.choices and found not in key.choices:
        yield Problem(path, f"is {found!r}, not one of {', '.join(key.choices)}")


def _bounded(found: object, path: str, key: Key) -> Iterator[Problem]:
    number = _number(found, key.kind)
    if number is None:
        yield _not(path, found, "a whole number" if key.kind == "int" else "a number")
        return
    if key.low is not None and number < key.low:
        yield Problem(path, f"is {found}, below {key.low:g}")
    if key.above is not None and number <= key.above:
        yield Problem(path, f"is {found}, not above {key.above:g}")
    if key.high is not None and number > key.high:
        yield Problem(path, f"is {found}, above {key.high:g}")


def _number(found: object, kind: str) -> int | float | None:
    """As SpecForge takes it: also from text, which is how YAML reads ``1e-4``."""
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        number = float(found)
    except (ValueError, OverflowError):
        return None
    if kind == "float":
        return number
    return int(number) if math.isfinite(number) and number == int(number) else None


def _not(path: str, found: object, wanted: str) -> Problem:
    return Problem(path, f"is {str(found)[:60]!r}, not {wanted}")


# --- keys together -----------------------------------------------------------------------------------------------


def _rules(content: Mapping[str, Any], version: str) -> Iterator[Problem]:
    def of(path: str) -> Any:
        return value(content, path, version)

    yield from _data_rules(of)
    yield from _training_rules(of, version)
    yield from _deployment_rules(of, content)


def _data_rules(of: Any) -> Iterator[Problem]:
    sources = [name for name in ("train_data_path", "prompts_path", "hidden_states_path") if of(f"data.{name}")]
    if len(sources) != 1:
        yield Problem("data", f"names {len(sources)} sources, not exactly one of the three")
    if of("data.eval_data_path"):
        yield Problem("data.eval_data_path", "is not supported; eval_hidden_states_path is")
    if bool(of("data.eval_hidden_states_path")) != (of("training.eval_interval") > 0):
        yield Problem("training.eval_interval", "goes together with data.eval_hidden_states_path")
    if of("data.eval_hidden_states_path") and not of("data.hidden_states_path"):
        yield Problem("data.eval_hidden_states_path", "goes with data.hidden_states_path only")


def _training_rules(of: Any, version: str) -> Iterator[Problem]:
    if of("training.strategy") != "eagle3":
        yield Problem("training.strategy", f"is {of('training.strategy')!r}; only eagle3 is served here")
    if of("training.attention_backend") not in ATTENTION[version]:
        yield Problem("training.attention_backend", f"EAGLE-3 supports {', '.join(ATTENTION[version])}")
    if of("data.train_data_path") and of("data.chat_template") not in CHAT_TEMPLATES[version]:
        yield Problem("data.chat_template", f"is {of('data.chat_template')!r}, none of its templates")
    ids = of("model.aux_hidden_state_layer_ids")
    if ids is not None and (len(ids) != _CAPTURED or len(set(ids)) != _CAPTURED or min(ids) < 0):
        yield Problem("model.aux_hidden_state_layer_ids", f"are {ids}, not three different layers")
    if of("model.draft_num_hidden_layers") not in (None, 1):
        yield Problem("model.draft_num_hidden_layers", "must be 1 for eagle3")
    if of("model.draft_checkpoint_path") and of("training.resume_from"):
        yield Problem("training.resume_from", "excludes model.draft_checkpoint_path")
    if of("training.tp_size") != 1:
        yield Problem("training.tp_size", "must be 1")


def _deployment_rules(of: Any, content: Mapping[str, Any]) -> Iterator[Problem]:
    online = not of("data.hidden_states_path")
    apart = of("deployment.mode") == "disaggregated"
    stated = of("deployment.disaggregated")
    if online and not apart:
        yield Problem("deployment.mode", "must be disaggregated for online training")
    if apart != (stated is not None):
        yield Problem("deployment.disaggregated", "goes together with deployment.mode: disaggregated")
    if apart and not of("model.vocab_mapping_path"):
        yield Problem("model.vocab_mapping_path", "is required with deployment.mode: disaggregated")
    if not apart or stated is None:
        return
    if online and stated.get("backend") != "mooncake":
        yield Problem("deployment.disaggregated.backend", "must be mooncake for online training")
    if stated.get("managed_local") is not None:
        yield from _local_stack(stated["managed_local"], of("deployment.trainer.nproc_per_node"))


def _local_stack(stack: Mapping[str, Any], processes: int) -> Iterator[Problem]:
    where = "deployment.disaggregated.managed_local"
    trainer = stack["trainer_cuda_visible_devices"]
    if len(trainer) != processes:
        yield Problem(f"{where}.trainer_cuda_visible_devices", f"names {len(trainer)} GPUs for {processes} processes")
    taken = list(trainer)
    for server in stack["capture_servers"]:
        devices = server["cuda_visible_devices"]
        if len(devices) != server.get("tp_size", 1):
            yield Problem(f"{where}.capture_servers[].tp_size", f"is not the number of its {len(devices)} GPUs")
        taken += devices
    if len(set(taken)) != len(taken):
        yield Problem(where, "uses a GPU twice")
