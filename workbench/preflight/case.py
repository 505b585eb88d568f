"""What the checks of a draft look at: the two checkpoints, how they are to be served, and sizes worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from workbench.checkpoint import Checkpoint, TensorInfo
from workbench.sglang_rules import is_eagle3_class, version_before, version_key

MLA_CLASS = "Eagle3DeepseekV2ForCausalLM"
DEFAULT_AUX_COUNT = 3
# Names that SGLang rewrites while loading (0.5.12 and later; before, "midlayer" was the only name of the layer).
_OLD_NAMES = {
    "midlayer": "layers.0",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}


@dataclass(frozen=True)
class DraftCase:
    """One draft, its target and its use. Sizes are ``None`` where the config does not state a usable one.

    Symbols as in the shapes: ``hidden`` H, ``input_hidden`` T (width of one captured state), ``aux_count`` A,
    ``vocab`` V, ``draft_vocab`` D. ``names`` maps the name a tensor has inside SGLang to those in the files.
    """

    draft: Checkpoint
    target: Checkpoint | None = None
    algorithm: str | None = None
    context_len: int | None = None
    version: str | None = None
    tp_size: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    target_dtype: str | None = None
    draft_dtype: str | None = None

    @property
    def config(self) -> Mapping[str, object]:
        return self.draft.config

    @property
    def target_config(self) -> Mapping[str, object]:
        return {} if self.target is None else self.target.text_config

    @property
    def draft_class(self) -> str | None:
        return architecture(self.config)

    @property
    def is_eagle3(self) -> bool:
        """Whether the draft means to be EAGLE-3, under a name SGLang knows or another."""
        return self.draft_class is not None and is_eagle3_class(self.draft_class)

    @property
    def is_mla(self) -> bool:
        return self.draft_class == MLA_CLASS

    @property
    def is_quantized(self) -> bool:
        return bool(quantization(self.draft))

    @property
    def hidden(self) -> int | None:
        return size(self.config, "hidden_size")

    @property
    def input_hidden(self) -> int | None:
        return size(self.config, "target_hidden_size") or self.hidden

    @property
    def vocab(self) -> int | None:
        return size(self.config, "vocab_size")

    @property
    def draft_vocab(self) -> int | None:
        """D; the whole vocabulary where the target's head is used."""
        return self.vocab if self.uses_target_head else size(self.config, "draft_vocab_size")

    @property
    def uses_target_head(self) -> bool:
        return self.config.get("draft_vocab_size", None if self.is_mla else 0) is None

    @property
    def has_cut_vocab(self) -> bool:
        return self.vocab is not None and self.draft_vocab is not None and self.draft_vocab < self.vocab

    @property
    def eagle_config(self) -> Mapping[str, object]:
        value = self.config.get("eagle_config")
        return value if isinstance(value, dict) else {}

    @property
    def capture_ids(self) -> tuple[int, ...] | None:
        """The layer ids that the target is told to capture; ``None`` where SGLang falls back to its default."""
        return whole_numbers(self.eagle_config.get("eagle_aux_hidden_state_layer_ids"))

    @property
    def uses_aux_states(self) -> bool:
        """Whether the captured states are passed on, and not the target's last one alone."""
        return self.eagle_config.get("use_aux_hidden_state", True) is True

    @property
    def aux_count(self) -> int:
        """A as the draft's ``fc`` is built."""
        ids = self.capture_ids
        if not ids and self.is_mla:
            ids = whole_numbers(self.config.get("eagle_aux_hidden_state_layer_ids"))
        return size(self.config, "num_aux_hidden_states") or len(ids or ()) or DEFAULT_AUX_COUNT

    @cached_property
    def names(self) -> dict[str, list[TensorInfo]]:
        found: dict[str, list[TensorInfo]] = {}
        for name, info in self.draft.tensors.items():
            found.setdefault(self._inner_name(name), []).append(info)
        return found

    def tensor(self, inner_name: str) -> TensorInfo | None:
        """The tensor that ends up under a name; of several the last read, as when SGLang loads."""
        found = self.names.get(inner_name)
        return found[-1] if found else None

    def at(self, key: str) -> str:
        """Where a key of the draft's config stands."""
        return f"{self.draft.path / 'config.json'}: {key}"

    def at_target(self, key: str) -> str:
        """Where a key of the target's config stands or would."""
        return "" if self.target is None else f"{self.target.path / 'config.json'}: {key}"

    def before(self, first: str) -> bool | None:
        """Whether the SGLang version is older than ``first``; ``None`` when it is not known or not a version."""
        try:
            version_key(self.version or "")
        except ValueError:
            return None
        return version_before(self.version or "", first)

    def _inner_name(self, name: str) -> str:
        for special in ("d2t", "t2d"):
            if name == special or name.endswith("." + special) or (special in name and not self.is_mla):
                return special
        if self.is_mla:
            return name
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        return name.removeprefix("model.")


def architecture(config: Mapping[str, object]) -> str | None:
    """The first of ``architectures``, the one SGLang builds."""
    names = config.get("architectures")
    return names[0][:200] if isinstance(names, list) and names and isinstance(names[0], str) else None


def size(config: Mapping[str, object], key: str) -> int | None:
    """A whole number above zero, or ``None`` where the config has none (true and 8.0 are none)."""
    value = config.get(key)
    return value if type(value) is int and value > 0 else None


def whole_numbers(value: object) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) and all(type(item) is int for item in value) else None


def quantization(checkpoint: Checkpoint) -> str | None:
    """The quantisation method of a checkpoint, ``None`` when its weights are plain."""
    for config in (checkpoint.config, checkpoint.text_config):
        for key in ("quantization_config", "compression_config"):
            stated = config.get(key)
            if isinstance(stated, dict) and stated:
                return str(stated.get("quant_method") or stated.get("quant_algo") or "unnamed method")
    return "modelopt" if (checkpoint.path / "hf_quant_config.json").is_file() else None


def brief(value: object) -> str:
    """A value from a file, short enough for a message."""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def place(info: TensorInfo) -> str:
    return f"{info.file}: {brief(info.name)}"


def listing(names: Iterable[str], *, limit: int = 6) -> str:
    """Some of the names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - limit
    return ", ".join(map(brief, ordered[:limit])) + (f" and {more} more" if more > 0 else "")
