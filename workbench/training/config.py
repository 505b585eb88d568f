"""A training run as asked for: a YAML file with these keys. Unknown ones are refused."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from workbench.errors import SpecError
from workbench.files import read_small
from workbench.plain import from_yaml
from workbench.spec import Frozen, Name, Positive

Share = Annotated[float, Field(ge=0, lt=1)]
Above = Annotated[float, Field(gt=0)]

SHARING = "WORKBENCH_TRAININGS_ON_GPU"
"""Variable that says how many trainings share a GPU: those that begin together each see all of it free."""


class TrainConfig(Frozen):
    """One drafter.

    Parameters
    ----------
    prompts
        Size of the nested subset to train on, counted in prompts; all answers of a prompt go together.
    answers_per_prompt
        Take no more than so many answers of each prompt; ``None`` takes all there are.
    seed
        Of the draft's first weights and the order of samples. ``subset_seed`` draws the subset, ``split_seed`` what is
        held out: keep both for drafters that are compared.
    max_tokens
        A longer sample is cut there.
    tokens_per_step
        Target tokens, prompts included, of one optimizer step of all processes together.
    tokens_per_pass
        The most that one process computes at once (at least one sample); a step that needs more adds up gradients.
    epochs, steps, minutes
        How long; exactly one. Minutes do not count the first steps, in which kernels are compiled.
    draft_vocab_size
        The commonest ids of the whole training split, not only of the subset; or the map of the draft ``vocab_from``.
    init_from
        A draft to go on from, with its vocabulary.
    capture
        0-based target layers whose output is captured, as ``eagle_aux_hidden_state_layer_ids``; ``None``: SGLang's own
        choice for the target's depth.
    compile
        ``auto``: on a GPU, from 400 steps on.
    cache_gb
        Memory of each process's device for what the target says about samples, which later epochs then need not compute
        again; ``auto``: 60 % of what a GPU has free, or of its part of one that trainings share; nothing on a CPU.
    dtype
        Of target and passes; the weights that are optimised are float32. ``auto``: bfloat16 on a GPU, else float32.
    """

    name: Name
    target: str
    corpus: str
    out: str
    prompts: Positive | Literal["all"] = "all"
    answers_per_prompt: Positive | None = None
    seed: int = 0
    subset_seed: int = 0
    split_seed: int = 0
    held_out: Annotated[int, Field(ge=0)] = 128
    passes: Annotated[int, Field(ge=1, le=16)] = 7
    max_tokens: Positive = 512
    tokens_per_step: Positive = 16384
    tokens_per_pass: Positive | None = None
    epochs: Above | None = None
    steps: Positive | None = None
    minutes: Above | None = None
    learning_rate: Above = 4e-4
    warmup: Share = 0.015
    final_rate: Share = 0.0
    betas: tuple[Share, Share] = (0.9, 0.95)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    clip: Above = 0.5
    draft_vocab_size: Positive | None = None
    vocab_from: str | None = None
    init_from: str | None = None
    capture: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool | Literal["auto"] = "auto"
    cache_gb: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"
    checkpoint_minutes: Above = 5.0
    log_steps: Positive = 20
    evaluate_steps: Positive | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        lengths = [key for key in ("epochs", "steps", "minutes") if getattr(self, key) is not None]
        if len(lengths) != 1:
            raise ValueError(f"exactly one of epochs, steps and minutes says how long, not {len(lengths)} of them")
        sources = [key for key in ("draft_vocab_size", "vocab_from", "init_from") if getattr(self, key) is not None]
        if len(sources) != 1:
            raise ValueError("exactly one of draft_vocab_size, vocab_from and init_from names the draft's vocabulary")
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """What a run that goes on must share with the one that began; where and how fast it runs may change."""
        return self.model_dump(mode="json", exclude=set(_MAY_CHANGE))


_MAY_CHANGE = (
    "device",
    "compile",
    "cache_gb",
    "checkpoint_minutes",
    "log_steps",
    "tokens_per_pass",
    "out",
    "evaluate_steps",
)


def read_content(path: Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """A training file as it is, with ``key=value`` changes.

    Raises
    ------
    SpecError
        When it cannot be read or a change is none.
    """
    try:
        content = from_yaml(read_small(path).decode())
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        step = "name a training file, such as those of data/training"
        raise SpecError(f"cannot be read ({said})", where=path, next_step=step) from error
    if not isinstance(content, dict):
        raise SpecError("holds no keys", where=path, next_step="write one `key: value` a line")
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"{setting!r} is no change", where="--set", next_step='give key=value, such as "seed=1"')
        try:
            content[key.strip()] = from_yaml(value)
        except ValueError as error:
            raise SpecError(f"{value!r} is no value", where=f"--set {key}") from error
    return content


def read_config(path: Path, settings: Sequence[str] = ()) -> TrainConfig:
    """A config file, with ``key=value`` changes.

    Raises
    ------
    SpecError
        When it cannot be read, or is no valid config.
    """
    try:
        return TrainConfig.model_validate(read_content(path, settings))
    except ValidationError as error:
        raise _fault(error, path) from error


def _fault(error: ValidationError, path: Path) -> SpecError:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"][:1]))
    hint = None
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, TrainConfig.model_fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(TrainConfig.model_fields)}"
    return SpecError(first["msg"], where=f"{path}: {key}" if key else path, next_step=hint)
