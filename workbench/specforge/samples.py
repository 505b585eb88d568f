"""What SpecForge is to train on: the samples, the mask of each, and how many steps they make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.chat import load_chat
from workbench.errors import InputError, UsageError
from workbench.files import replacing
from workbench.paths import under_root
from workbench.plain import from_json
from workbench.specforge.order import Order
from workbench.training import order as ordering
from workbench.training import vocabulary
from workbench.training.corpus import Sample, read_corpus, split, subset

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Data:
    """``vocabulary`` are the target's ids that the draft proposes, ascending. ``about`` goes into the manifest.

    Of conversations there are no samples: SpecForge makes its own of them.
    """

    samples: Sequence[Sample]
    held_out: Sequence[Sample]
    vocabulary: Ints
    about: Mapping[str, Any]


def choose(order: Order, *, vocab_size: int, target: Path, eos: frozenset[int]) -> Data:
    """The samples of an order, chosen as a training of ours with the same keys would.

    Raises
    ------
    UsageError, InputError
        When nothing is left, or a file cannot be read.
    """
    if order.conversations is not None:
        return _conversations(order, vocab_size, target, eos)
    assert order.corpus is not None
    whole = read_corpus(Path(under_root(order.corpus)))
    training, held = split(whole, held_out=order.held_out, seed=order.split_seed)
    chosen = training if order.prompts == "all" else subset(training, order.prompts, seed=order.subset_seed)
    samples, left_out = ordering.usable(chosen, order.max_tokens, order.answers_per_prompt)
    if not samples:
        raise UsageError(f"no sample is left to train on: {left_out}", next_step="raise max_tokens, or add answers")
    highest = max(int(sample.ids.max()) for sample in samples)
    if highest >= vocab_size:
        raise UsageError(
            f"the corpus has token {highest}, the target's vocabulary {vocab_size}",
            where="corpus",
            next_step="name the target that made the answers",
        )
    if order.vocab_from is not None:
        ids = vocabulary.of_draft(Path(under_root(order.vocab_from)))
    else:
        assert order.draft_vocab_size is not None
        ids = vocabulary.commonest(training, order.draft_vocab_size, vocab_size)
    bulky = ("parts", "tasks")
    about = {
        "samples": len(samples),
        "prompts": len({sample.prompt for sample in samples}),
        "response_tokens": sum(sample.response_tokens for sample in samples),
        "tokens": sum(len(sample.ids) for sample in samples),
        "left_out": left_out,
        "draft_vocab_coverage": vocabulary.coverage(training, ids),
        "corpus": {"digest": whole.digest, **{key: said for key, said in whole.about.items() if key not in bulky}},
    }
    evaluated = ordering.usable(held, order.max_tokens, 1)[0] if order.evaluate_steps is not None else []
    return Data(samples, evaluated, ids, about)


def loss_mask(sample: Sample, eos: frozenset[int], how: str) -> Ints:
    """The mask of a sample as SpecForge 0.2.0 is to get it, shape [tokens].

    With ids x and states f its slot t takes (f_t, x_{t+1}), proposes x_{t+2}, and is judged where mask[t] is 1: ids and
    labels were shifted by one, the mask was not (SpecForge issue 885). ``plain`` marks the response; the slot before
    its first token, the first that drafts in serving, is then never trained. ``shifted`` marks slot t where x_{t+1} is
    a token of the response that does not close it: what a training of ours is judged by.
    """
    mask = np.zeros(len(sample.ids), np.int64)
    if how == "plain":
        mask[sample.prompt_tokens :] = 1
        return mask
    end = len(sample.ids) - (int(sample.ids[-1]) in eos)
    mask[max(1, sample.prompt_tokens) - 1 : end - 1] = 1
    return mask


def eos_ids(config: Mapping[str, object]) -> frozenset[int]:
    value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if type(item) is int)


def steps_of(order: Order, samples: int) -> tuple[int, int]:
    """``num_epochs`` and ``max_steps`` of a run over so many samples.

    SpecForge deals samples evenly to processes, drops the rest of a batch in every epoch, and refuses a run that ends
    within a step unless ``max_steps`` stops it before (``training/schedule.py``).

    Raises
    ------
    UsageError
        When the samples do not make one step.
    """
    batches = -(-samples // order.gpus) // order.batch_size
    if order.steps is not None:
        epochs = -(-order.steps * order.accumulation_steps // batches) if batches else 1
        steps = order.steps
    else:
        assert order.epochs is not None
        epochs, steps = order.epochs, batches * order.epochs // order.accumulation_steps
    if not batches or not steps:
        raise UsageError(
            f"{samples} samples make no step of {order.batch_size} x {order.accumulation_steps} on {order.gpus} GPUs",
            next_step="lower batch_size or accumulation_steps, or give more samples",
        )
    return epochs, steps


def write_ids(samples: Sequence[Sample], path: Path, eos: frozenset[int], how: str, names: Sequence[str]) -> None:
    """Samples as SpecForge's tokenised JSONL: ``id``, ``input_ids``, ``loss_mask``."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for name, sample in zip(names, samples, strict=True):
            line = {"id": name, "input_ids": sample.ids.tolist(), "loss_mask": loss_mask(sample, eos, how).tolist()}
            file.write(json.dumps(line) + "\n")


# --- conversations -----------------------------------------------------------------------------------------------


def _conversations(order: Order, vocab_size: int, target: Path, eos: frozenset[int]) -> Data:
    """Not tokenised, which SpecForge does itself; only what the assistant says is, for the vocabulary."""
    assert order.conversations is not None
    path = Path(under_root(order.conversations))
    records = _records(path)
    about = {"conversations": len(records), "file": path.name}
    if order.vocab_from is not None:
        return Data((), (), vocabulary.of_draft(Path(under_root(order.vocab_from))), about)
    assert order.draft_vocab_size is not None
    chat, counts = load_chat(target), np.zeros(vocab_size, np.int64)
    for text in (text for record in records for text in _answers(record, path)):
        # The token that closes an answer is no part of its text, and a draft must be able to propose it.
        ids = [*chat.encode(text, add_special_tokens=False), *eos]
        counts += np.bincount([i for i in ids if i < vocab_size], minlength=vocab_size)
    if order.draft_vocab_size > vocab_size or not counts.any():
        raise UsageError(
            f"{order.draft_vocab_size} of {vocab_size} ids are asked for, and {int(counts.sum())} tokens were counted",
            where=path,
            next_step="ask for no more ids than the target has, and give conversations with answers",
        )
    kept = np.argsort(-counts, kind="stable")[: order.draft_vocab_size]
    return Data((), (), np.sort(kept), about)


def _records(path: Path) -> list[Any]:
    try:
        return [from_json(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"no JSONL of conversations ({error})", where=path, next_step="one object a line") from error


def _answers(record: Any, path: Path) -> list[str]:
    turns = record.get("conversations") if isinstance(record, dict) else None
    if not isinstance(turns, list):
        raise InputError('a line has no list of "conversations"', where=path, next_step="see docs/specforge.md")
    return [str(turn.get("content")) for turn in turns if isinstance(turn, dict) and turn.get("role") == "assistant"]
