"""A training file whose keys are lists: many drafters, each trained in a process and a folder of its own.

Every key of `workbench.training.config.TrainConfig` may hold a list of its values; the runs are the product of all
lists. ``sweep`` adds up several such products, each on top of the keys outside. What tells runs apart is their content:
a folder's name ends in a hash of it, so a run that is finished is kept and one that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench.errors import SpecError
from workbench.files import replacing
from workbench.paths import project_root, slug
from workbench.plain import to_yaml
from workbench.training.config import TrainConfig, read_content
from workbench.training.judged import Walk

CONFIG, OUTPUT = "train.yaml", "train.log"
MOST_RUNS = 1_000
_TUPLES = frozenset({"betas", "capture"})
_LENGTHS = ("epochs", "steps", "minutes")
_PATHS = ("target", "corpus", "vocab_from", "init_from")


@dataclass(frozen=True, slots=True)
class Study:
    """Runs in the order in which they are trained, and the walks that are made with every drafter."""

    name: str
    folder: Path
    runs: tuple[TrainConfig, ...]
    walks: tuple[Walk, ...]


# --- reading -----------------------------------------------------------------------------------------------------


def is_study(content: Mapping[str, Any]) -> bool:
    """Whether a training file means more than one drafter."""
    return "sweep" in content or "evaluate" in content or any(_is_list(key, content[key]) for key in content)


def read_study(path: Path, settings: Sequence[str] = ()) -> Study:
    """All runs of a training file.

    Raises
    ------
    SpecError
        When it cannot be read, or one of its runs is no valid config.
    """
    content = read_content(path, settings)
    name, out = content.get("name"), content.pop("out", None)
    if not isinstance(name, str) or not isinstance(out, str):
        raise SpecError("a study has a name and out, the folder of its drafters", where=path)
    try:
        walks = tuple(Walk.model_validate(walk) for walk in content.pop("evaluate", None) or ())
    except (ValidationError, TypeError) as error:
        raise _fault(error, f"{path}: evaluate") from error
    blocks = content.pop("sweep", None) or [{}]
    if not (isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks)):
        raise SpecError("is no list of blocks", where=f"{path}: sweep", next_step="write `- key: [value, value]`")
    folder = Path(out) if Path(out).is_absolute() else project_root() / out
    runs: dict[str, TrainConfig] = {}
    count = sum(
        math.prod(len(value) for key, value in {**content, **block}.items() if _is_list(key, value)) for block in blocks
    )
    if count > MOST_RUNS:
        raise SpecError(f"{count:,} drafters, and at most {MOST_RUNS:,} are trained", where=path)
    for block in blocks:
        for keys in _products({**content, **block}):
            run = _run(keys, folder, path)
            runs.setdefault(run.name, run)
    return Study(name, folder, tuple(_in_order(runs.values())), walks)


def _is_list(key: str, value: object) -> bool:
    if not isinstance(value, list):
        return False
    return key not in _TUPLES or any(isinstance(item, list) for item in value)


def _products(keys: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    lists = [value if _is_list(key, value) else [value] for key, value in keys.items()]
    return (dict(zip(keys, values, strict=True)) for values in itertools.product(*lists))


def _run(keys: dict[str, Any], folder: Path, path: Path) -> TrainConfig:
    try:
        config = TrainConfig.model_validate({**keys, "out": str(folder)})
    except ValidationError as error:
        raise _fault(error, path) from error
    name = run_name(config)
    return config.model_copy(update={"name": name, "out": str(folder / name)})


def _fault(error: Exception, where: str | Path) -> SpecError:
    if not isinstance(error, ValidationError):
        return SpecError(" ".join(str(error).split()), where=where)
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    return SpecError(first["msg"], where=f"{where}: {key}" if key else where)


def run_name(config: TrainConfig) -> str:
    """What a run is called: its size, its length, its seed, and a hash of all that decides about its weights."""
    length = next(name for name in _LENGTHS if getattr(config, name) is not None)
    said = f"n{config.prompts}-{getattr(config, length):g}{length}-seed{config.seed}"
    return f"{slug(said)}-{_content_hash(config)}"


def _content_hash(config: TrainConfig) -> str:
    """First 6 hex digits. What has its default is left out, so that a key that is added later changes no hash.

    Of paths only the last part counts: a study may move to another machine.
    """
    stated = config.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
    content = {name: value for name, value in stated.items() if name in config.identity}
    content |= {name: Path(content[name]).name for name in _PATHS if name in content}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6]


# --- order -------------------------------------------------------------------------------------------------------


def _in_order(runs: Iterable[TrainConfig]) -> list[TrainConfig]:
    """The first seed of all sizes before the second; smallest and largest first, so that the ends stand early."""
    held = list(runs)
    rank = {size: place for place, size in enumerate(_outside_in(sorted({_size(run) for run in held})))}
    return sorted(held, key=lambda run: (run.seed, rank[_size(run)]))


def _size(run: TrainConfig) -> float:
    return float("inf") if run.prompts == "all" else run.prompts


def _outside_in(sizes: Sequence[float]) -> list[float]:
    ordered = []
    left = list(sizes)
    while left:
        ordered.append(left.pop(0))
        if left:
            ordered.append(left.pop())
    return ordered


# --- folders -----------------------------------------------------------------------------------------------------


def write_config(run: TrainConfig) -> Path:
    """The config beside the drafter that comes of it; the command that trains it reads this file."""
    path = Path(run.out) / CONFIG
    with replacing(path) as temporary:
        temporary.write_text(to_yaml(run.model_dump(mode="json", exclude_none=True)))
    return path
