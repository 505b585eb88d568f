"""A SpecForge run as asked for: a YAML file, its keys named as in a training of ours where they mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from workbench.errors import SpecError
from workbench.files import read_small
from workbench.plain import from_yaml
from workbench.spec import Frozen, Name, Positive
from workbench.training.config import Above, Share


class Order(Frozen):
    """One drafter that SpecForge is to train.

    Parameters
    ----------
    target
        Folder of the target; for ``conversations`` without draft map its tokenizer is used, too.
    mode
        ``offline``: from features in files, one GPU or more and nothing else. ``online``: from a patched SGLang server
        that SpecForge starts beside the trainer.
    corpus, conversations
        Exactly one: a corpus of ours, or (online only) a JSONL of ``{"id", "conversations": [{"role", "content"}]}``
        that SpecForge tokenises with its own ``chat_template``.
    features
        ``write``: compute and write them here (a plain Llama that fits into this machine). ``list``: only say which.
    loss_mask
        ``shifted``: SpecForge 0.2.0 shifts ids and labels by one and not the mask (its issue 885), so the mask is
        written shifted; ``plain``: as its own tools write it.
    batch_size, accumulation_steps, gpus
        Samples of an optimizer step are their product.
    capture_gpus
        GPUs of the capture server (online), behind the trainer's.
    draft
        Keys of the draft's config that are not the target's, for targets that are no plain Llama.
    settings
        Further keys of run.yaml, such as ``training.lr_scheduler: constant``.
    """

    name: Name
    target: str
    specforge_version: str = "0.2.0"
    mode: Literal["offline", "online"] = "offline"
    corpus: str | None = None
    conversations: str | None = None
    chat_template: str | None = None
    prompts: Positive | Literal["all"] = "all"
    answers_per_prompt: Positive | None = None
    subset_seed: int = 0
    split_seed: int = 0
    held_out: Annotated[int, Field(ge=0)] = 128
    features: Literal["write", "list"] = "write"
    loss_mask: Literal["shifted", "plain"] = "shifted"
    seed: int = 0
    passes: Annotated[int, Field(ge=1, le=16)] = 7
    max_tokens: Positive = 512
    batch_size: Positive = 1
    accumulation_steps: Positive = 1
    gpus: Positive = 1
    capture_gpus: Positive = 1
    epochs: Positive | None = None
    steps: Positive | None = None
    learning_rate: Above = 1e-4
    warmup: Share = 0.015
    clip: Above = 0.5
    draft_vocab_size: Positive | None = None
    vocab_from: str | None = None
    capture: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    log_steps: Positive = 50
    checkpoint_steps: Annotated[int, Field(ge=0)] = 0
    evaluate_steps: Positive | None = None
    tracking: Literal["none", "wandb", "tensorboard", "swanlab", "mlflow"] = "none"
    draft: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _one_of(self, "corpus", "conversations")
        _one_of(self, "epochs", "steps")
        _one_of(self, "draft_vocab_size", "vocab_from")
        if self.conversations is not None and self.mode == "offline":
            raise ValueError("offline features are of token ids: make a corpus with `workbench answers`, or go online")
        if self.conversations is not None and self.chat_template is None:
            raise ValueError("conversations need a chat_template of SpecForge's")
        if self.conversations is not None and self.steps is None:
            raise ValueError("how many of the conversations SpecForge keeps is not known before: say steps")
        if self.evaluate_steps is not None and (self.mode == "online" or not self.held_out):
            raise ValueError("evaluate_steps needs mode: offline and held_out above 0")
        secret = [key for key in self.settings if key.startswith("tracking.") and key.endswith("_key")]
        if secret:
            raise ValueError(f"{secret[0]} does not belong into a file: SpecForge takes it from the environment, too")
        if self.capture is not None and (len(self.capture) != 3 or len(set(self.capture)) != 3):
            raise ValueError("SpecForge captures exactly three different layers")
        return self


def _one_of(order: Order, *keys: str) -> None:
    if sum(getattr(order, key) is not None for key in keys) != 1:
        raise ValueError(f"exactly one of {' and '.join(keys)} must be given")


def read_order(path: Path, settings: Sequence[str] = ()) -> Order:
    """An order file, with ``key=value`` changes.

    Raises
    ------
    SpecError
        When it cannot be read, or is no valid order.
    """
    try:
        content = from_yaml(read_small(path).decode())
        changes = dict(_change(setting) for setting in settings)
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot be read ({' '.join(str(error).split())})", where=path) from error
    if not isinstance(content, dict):
        raise SpecError("holds no keys", where=path, next_step="write one `key: value` a line")
    try:
        return Order.model_validate({**content, **changes})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        names = ", ".join(Order.model_fields)
        hint = f"there are: {names}" if first["type"] == "extra_forbidden" else None
        raise SpecError(first["msg"], where=f"{path}: {key}" if key else path, next_step=hint) from error


def _change(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"{setting!r} is no change", where="--set", next_step='give key=value, such as "seed=1"')
    return key.strip(), from_yaml(text)
