"""What a training folder says of its drafter, read as plain JSON: no PyTorch, nothing of the trainer.

``training.json`` is what the trainer leaves; ``evaluated-*.json`` are walks along the answers to a prompt set, made by
``workbench evaluate`` on the way to a campaign (see `workbench.train`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench.errors import InputError
from workbench.files import is_file, read_small
from workbench.paths import under_root
from workbench.plain import from_json
from workbench.spec import Drafter, OfflineAcceptance, Range, Target, Workload

RECORD, LOG = "training.json", "training_log.jsonl"
EVALUATED = "evaluated-*.json"
_DESIGNS = {"epochs": "fixed epochs", "steps": "fixed steps", "minutes": "fixed time"}
# What the parts of a record raise that are not what the trainer writes.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, StopIteration, ArithmeticError, ValidationError)
_AGAIN = "train it again with `workbench train`, or describe the drafter in the campaign file"


def is_trained(folder: str | Path | None) -> bool:
    """Whether a finished drafter of ours lies there."""
    return folder is not None and is_file(Path(under_root(str(folder))) / RECORD)


def read_record(folder: Path) -> dict[str, Any]:
    """training.json.

    Raises
    ------
    InputError
        When it is missing or no object.
    """
    path = folder / RECORD
    try:
        content = from_json(read_small(path))
    except (OSError, ValueError) as error:
        raise InputError(f"no record of a training ({error})", where=path, next_step=_AGAIN) from error
    if not isinstance(content, dict):
        raise InputError("no record of a training (not an object)", where=path, next_step=_AGAIN)
    return content


def folders_in(folder: str) -> list[Path]:
    """Every subfolder with a finished drafter, by name."""
    return sorted(path.parent for path in Path(under_root(folder)).glob(f"*/{RECORD}"))


def drafters_in(folder: str, target: Target, workloads: Sequence[Workload]) -> list[Drafter]:
    """A drafter for every trained one in the subfolders, called like them."""
    # The path stays as it was given, so that a campaign file means the same wherever the project lies.
    return [
        filled(Drafter(name=path.name, model_path=f"{folder.rstrip('/')}/{path.name}"), target, workloads)
        for path in folders_in(folder)
    ]


def filled(drafter: Drafter, target: Target, workloads: Sequence[Workload]) -> Drafter:
    """A drafter with the facts of its training folder where it does not state them; unchanged without such a folder.

    Parameters
    ----------
    target
        The campaign's; the training knows its target by the name of a folder only.
    workloads
        What the campaign sends: a walk is said to be served as one where prompts, their number, and the answers'
        length and temperature are the same.

    Raises
    ------
    InputError
        When the folder's files are not what they should be.
    """
    if not is_trained(drafter.model_path):
        return drafter
    folder = Path(under_root(str(drafter.model_path)))
    record = read_record(folder)
    try:
        found = _facts(record, target) | {"offline": [*_held_out(record), *_evaluated(folder, workloads)]}
        known = drafter.model_dump(exclude_defaults=True)
        return Drafter.model_validate({name: value for name, value in found.items() if value is not None} | known)
    except MALFORMED as error:
        what = f"no record of a training ({' '.join(str(error).split())})"
        raise InputError(what, where=folder / RECORD, next_step=_AGAIN) from error


# --- training.json -----------------------------------------------------------------------------------------------


def _facts(record: Mapping[str, Any], target: Target) -> dict[str, Any]:
    if "drafter" in record:
        # A run of another trainer, see `workbench.specforge.read`: what is not known of it is not there.
        return {**record["drafter"], "target": _target(record, target)}
    config, data, seen = record["config"], record["data"], record["seen"]
    held = record.get("held_out") or {}
    return {
        "target": _target(record, target),
        "training_samples": data["samples"],
        "response_tokens": data["response_tokens"],
        "seed": config["seed"],
        "optimizer_steps": seen["optimizer_steps"],
        "epochs": round(seen["epochs"], 3),
        "draft_vocab_size": record["draft_vocab_size"],
        "data_mix": data_mix(record),
        "recipe": recipe(record),
        "design": _DESIGNS[_length(config)[0]],
        "survival": held.get("survival"),
        "survival_prompt_set": held_out_name(record) if held else None,
    }


def _target(record: Mapping[str, Any], target: Target) -> str | None:
    """The campaign's own name of its target where the training's folder is called like it."""
    corpus, folder = record["data"].get("corpus") or {}, record["config"].get("target")
    trained = corpus.get("target") or (folder and Path(folder).name)
    if not trained:
        return None
    served = (target.name, Path(target.model_path or target.name).name)
    return target.name if trained.casefold() in (name.casefold() for name in served) else trained


def data_mix(record: Mapping[str, Any]) -> str:
    """Prompts and how they were answered: the same for all sizes of one corpus."""
    corpus = record["data"]["corpus"]
    prompts = (corpus.get("prompt_set") or {}).get("name", "prompts not stated")
    temperature = corpus.get("temperature")
    sampled = "" if temperature is None else f" at temperature {temperature:g}"
    longest = corpus.get("max_new_tokens")
    cut = "" if longest is None else f", at most {longest} tokens"
    several = record["config"].get("answers_per_prompt")
    taken = "" if several is None else f", at most {several} a prompt"
    return f"{prompts}; answers by the target{sampled}{cut}{taken} (corpus {corpus['digest']})"


def recipe(record: Mapping[str, Any]) -> str:
    """How it was trained, without what it was trained on: the same for all sizes of one design."""
    config = record["config"]
    words, length = _length(config)
    said = f"EAGLE-3, {config['passes']} passes, learning rate {config['learning_rate']:g}, "
    said += f"{config['tokens_per_step']:,} tokens a step, {length:,g} {words}"
    begun = config.get("init_from")
    return f"{said}, going on from {Path(begun).name}" if begun else said


def _length(config: Mapping[str, Any]) -> tuple[str, float]:
    """``epochs``, ``steps`` or ``minutes``, and how many."""
    return next((name, config[name]) for name in _DESIGNS if config.get(name) is not None)


def held_out_name(record: Mapping[str, Any]) -> str:
    """What the walk at the end of the training is called. Its answers are the corpus's own: no campaign serves it."""
    corpus = record["data"]["corpus"]
    prompts = (corpus.get("prompt_set") or {}).get("name", "corpus")
    return f"{prompts}, held out, {'sampled' if corpus.get('temperature') else 'greedy'} answers"


def _held_out(record: Mapping[str, Any]) -> list[OfflineAcceptance]:
    held = record.get("held_out")
    return [] if not held else [_offline(held, held_out_name(record), None)]


# --- evaluated-*.json --------------------------------------------------------------------------------------------


def evaluated_files(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The walks beside a drafter.

    Raises
    ------
    InputError
        When one cannot be read.
    """
    found = []
    for path in sorted(folder.glob(EVALUATED)):
        try:
            found.append((path, dict(from_json(read_small(path)))))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"no figures of a walk ({error})", where=path, next_step="remove it") from error
    return found


def _evaluated(folder: Path, workloads: Sequence[Workload]) -> list[OfflineAcceptance]:
    return [_walk(figures, path, workloads) for path, figures in evaluated_files(folder)]


def _walk(figures: Mapping[str, Any], path: Path, workloads: Sequence[Workload]) -> OfflineAcceptance:
    asked = figures.get("asked") or {}
    name = str(asked.get("prompt_set") or path.stem.removeprefix("evaluated-"))
    served = any(
        (work.prompt_set, work.num_prompts, work.max_new_tokens, work.temperature)
        == (asked.get("prompt_set"), asked.get("num_prompts"), asked.get("max_new_tokens"), asked.get("temperature"))
        and not work.ignore_eos
        for work in workloads
    )
    count = asked.get("num_prompts")
    return _offline(figures, name if count is None else f"{name}, {count} prompts", name if served else None)


def _offline(figures: Mapping[str, Any], name: str, served_as: str | None) -> OfflineAcceptance:
    varied = (figures.get("without_repetitive") or {}).get("accept_length") or {}
    return OfflineAcceptance(
        prompt_set=name,
        served_as=served_as,
        accept_length_by_steps=_by_steps(figures["accept_length"]),
        num_prompts=figures.get("prompts"),
        interval_by_steps={
            int(steps): Range(low=low, high=high) for steps, (low, high) in (figures.get("interval_95") or {}).items()
        },
        without_repetitive_by_steps=_by_steps(varied),
    )


def _by_steps(lengths: Mapping[str, float]) -> dict[int, float]:
    return {int(steps): length for steps, length in lengths.items()}
