"""Walks beside a drafter, along the target's answers to the prompts that a campaign sends: offline against served."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.files import read_small, replacing
from workbench.paths import slug, under_root
from workbench.plain import from_json
from workbench.prompts import prompt_set, run_name
from workbench.spec import Frozen, Positive
from workbench.training.config import TrainConfig

Execute = Callable[[Sequence[str]], int]
"""Runs a command line to its end and returns its exit code."""


class Walk(Frozen):
    """Prompts to judge by. ``answers`` is a corpus of greedy answers to them; without it the target answers anew.

    ``num_prompts`` takes the first ones of the set; a campaign with the same number and ``max_new_tokens`` serves what
    is walked along here.
    """

    prompts: str
    answers: str | None = None
    num_prompts: Positive | None = None
    max_new_tokens: Positive = 256

    def asked(self) -> dict[str, Any]:
        """What was sent, in the words of a campaign's workload."""
        sent: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "temperature": 0.0}
        if self.answers is not None:
            about = _about(Path(under_root(self.answers)) / "corpus.json")
            sent = {name: about.get(name) for name in sent}
        count = self.num_prompts or len(prompt_set(self.prompts).prompts)
        return {"prompt_set": run_name(self.prompts), "num_prompts": count, **sent}

    def file_in(self, folder: Path) -> Path:
        asked = self.asked()
        return folder / f"evaluated-{slug(str(asked['prompt_set']))}-{asked['num_prompts']}.json"


def _about(path: Path) -> dict[str, Any]:
    try:
        return dict(from_json(read_small(path)))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"no corpus ({error})", where=path, next_step="make it with `workbench answers`") from error


def missing(folder: Path, walks: Sequence[Walk]) -> list[Walk]:
    """The walks whose figures do not lie beside the drafter, or are of another length of answers."""
    return [walk for walk in walks if _figures(walk.file_in(folder)).get("asked") != walk.asked()]


def _figures(path: Path) -> dict[str, Any]:
    try:
        return dict(from_json(read_small(path)))
    except (OSError, ValueError, TypeError):
        return {}


def make(walk: Walk, config: TrainConfig, folder: Path, execute: Execute) -> bool:
    """Walk with the drafter of ``folder`` and keep the figures beside it; whether that went well."""
    path = walk.file_in(folder)
    made = path.with_name(f".{path.name}")
    try:
        if execute(_command(walk, config, folder, made)) != 0:
            return False
        figures = {"asked": walk.asked(), **json.loads(made.read_text(encoding="utf-8"))}
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        return True
    finally:
        made.unlink(missing_ok=True)


def _command(walk: Walk, config: TrainConfig, folder: Path, out: Path) -> list[str]:
    command = [sys.executable, "-P", "-m", "workbench", "evaluate", str(folder), "--target", config.target]
    if walk.answers is not None:
        command += ["--answers", walk.answers]
    else:
        command += ["--prompts", walk.prompts, "--max-new-tokens", str(walk.max_new_tokens)]
    command += ["--limit", str(walk.num_prompts)] if walk.num_prompts is not None else []
    places = {"--steps": config.passes, "--device": config.device, "--dtype": config.dtype, "--out": out}
    return [*command, *(str(word) for option in places.items() for word in option)]
