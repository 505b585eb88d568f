"""``workbench evaluate``: the accept length of a draft folder on a corpus, or on a target's greedy answers to a set."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.chat import load_chat
from workbench.checkpoint import read_checkpoint
from workbench.drafter.checkpoint import load_draft, read_draft_config
from workbench.errors import UsageError
from workbench.files import replacing
from workbench.paths import under_root
from workbench.prompts import prompt_set
from workbench.reference.target import Target, load_target
from workbench.training import record
from workbench.training.corpus import Sample, read_corpus, split
from workbench.training.evaluate import summary, table, walks
from workbench.training.greedy import answers
from workbench.training.served import read_served
from workbench.training.setup import captured, model_folder, precision
from workbench.training.walk import Walk, accept_lengths

_NEW_TOKENS = 256

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """Exactly one of ``corpus``, ``prompts`` (a set's name or file) and ``served`` (a run folder) says which answers.

    ``held_out`` and ``split_seed`` choose the prompts of a corpus that a training run with the same keys holds out.
    """

    draft: Path
    target: str
    corpus: Path | None = None
    prompts: str | None = None
    served: Path | None = None
    limit: int | None = None
    max_new_tokens: int | None = None
    held_out: int | None = None
    split_seed: int = 0
    steps: int = 7
    seed: int = 0
    device: str = "auto"
    dtype: str = "auto"


def evaluate_draft(request: Request, say: Say) -> dict[str, Any]:
    """Figures of a draft; `workbench.training.evaluate.table` shows them.

    Raises
    ------
    UsageError, InputError
        When the request does not name one kind of answers, or something it names cannot be used.
    """
    given = [key for key in ("corpus", "prompts", "served") if getattr(request, key) is not None]
    if len(given) != 1:
        raise UsageError(
            "answers come from a corpus, from prompts or from a served run",
            next_step="give one of --answers, --prompts and --served",
        )
    _refuse_ignored(request)
    read_draft_config(read_checkpoint(request.draft))
    device = _device(request.device)
    dtype = precision(request.dtype, device)
    target = load_target(model_folder(request.target), dtype=dtype, device=device)
    draft = load_draft(request.draft, dtype=dtype, device=device)
    if draft.config.shape.hidden_size != target.shape.hidden_size:
        raise UsageError("draft and target differ in width", where=request.draft, next_step="name its own target")
    samples, about = _answers(request, target, say)
    capture = captured(target, draft.config.capture_ids)
    found = walks(target, draft, samples, capture=capture, steps=request.steps, say=say)
    if not found:
        raise UsageError("no answer has more than one token", next_step="use longer answers")
    return {
        "draft": str(request.draft),
        "target": request.target,
        "answers_from": about,
        "steps": request.steps,
        "dtype": str(dtype).removeprefix("torch."),
        **summary(found, seed=request.seed),
        **({"served": _beside(about["served"], found)} if about.get("served") else {}),
        "machine": record.machine(device),
    }


def write(figures: dict[str, Any], path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def text(figures: dict[str, Any]) -> str:
    """The answer of the command."""
    warm = figures["answers_from"].get("temperature")
    served = figures.get("served")
    beside = (
        f"\nserved with {served['steps']} steps: {served['accept_length']:.3f} on the same tokens, "
        f"the walk is {served['gap']:+.1%} from it"
        if served
        else ""
    )
    note = f"\nThe answers were sampled at temperature {warm:g}: the walk is along them, not greedy." if warm else ""
    return table(figures) + beside + note


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _refuse_ignored(request: Request) -> None:
    for key, of in (("max_new_tokens", "prompts"), ("held_out", "corpus")):
        if getattr(request, key) is not None and getattr(request, of) is None:
            kind = {"prompts": "--prompts", "corpus": "--answers"}[of]
            raise UsageError(f"goes with {kind}", where=f"--{key.replace('_', '-')}", next_step=f"add {kind}")
    if request.limit is not None and request.served is not None:
        raise UsageError("a served run is taken whole", where="--limit", next_step="leave --limit out")


def _answers(request: Request, target: Target, say: Say) -> tuple[list[Sample], dict[str, Any]]:
    if request.corpus is not None:
        return _from_corpus(request)
    return _from_prompts(request, target, say) if request.prompts is not None else _from_run(request)


def _from_run(request: Request) -> tuple[list[Sample], dict[str, Any]]:
    assert request.served is not None
    run = read_served(request.served, load_chat(model_folder(request.target)))
    about: dict[str, Any] = {"run": str(request.served), "prompts": run.prompt_set, "temperature": run.temperature}
    if run.steps is not None and run.accept_length is not None:
        about["served"] = {"steps": run.steps, "accept_length": run.accept_length}
    return run.samples, about


def _beside(served: dict[str, Any], found: list[Walk]) -> dict[str, Any]:
    """The server's accept length and how far the walk's is from it; nothing where the walk has fewer steps."""
    lengths = accept_lengths(found)
    if served["steps"] > len(lengths):
        return {}
    return {**served, "gap": lengths[served["steps"] - 1] / served["accept_length"] - 1}


def _from_corpus(request: Request) -> tuple[list[Sample], dict[str, Any]]:
    assert request.corpus is not None
    corpus = read_corpus(Path(under_root(str(request.corpus))))
    about = {"corpus": str(request.corpus), "digest": corpus.digest, "temperature": corpus.about.get("temperature")}
    if request.held_out is not None:
        corpus = split(corpus, held_out=request.held_out, seed=request.split_seed)[1]
        about |= {"held_out": request.held_out, "split_seed": request.split_seed}
    prompts = frozenset(corpus.prompts[: request.limit])
    return [sample for sample in corpus.samples if sample.prompt in prompts], about


def _from_prompts(request: Request, target: Target, say: Say) -> tuple[list[Sample], dict[str, Any]]:
    assert request.prompts is not None
    prompts = prompt_set(request.prompts).prompts[: request.limit]
    chat = load_chat(model_folder(request.target))
    ids = [chat.prompt_ids([{"role": "user", "content": prompt.text}]) for prompt in prompts]
    most = request.max_new_tokens or _NEW_TOKENS
    found = answers(target, ids, max_new_tokens=most, say=say)
    samples = [
        Sample(np.array([*asked, *answer], np.uint32), len(asked), prompt.index, 0, prompt.task)
        for prompt, asked, answer in zip(prompts, ids, found, strict=True)
    ]
    about = {"prompts": request.prompts, "temperature": 0.0, "max_new_tokens": most}
    return samples, about
