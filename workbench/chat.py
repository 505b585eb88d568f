"""Chat messages to token ids, by the model folder's own template and tokenizer, so that every engine sees the same ids.

``strftime_now`` is left undefined on purpose: templates that know it would put today's date into the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from workbench.errors import CheckpointError, MissingToolError
from workbench.files import read_small
from workbench.plain import from_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Message = Mapping[str, str]
_DEFAULT = "default"
_COPY = "copy the tokenizer's files into the model folder"


@dataclass(frozen=True, slots=True)
class Chat:
    """A tokenizer and, where the folder has one, its chat template."""

    folder: Path
    tokenizer: Tokenizer
    template: str | None
    special_tokens: Mapping[str, str]

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt text.

        Raises
        ------
        CheckpointError
            When there is no template, or it refuses the messages.
        """
        if self.template is None:
            raise CheckpointError("no chat template", where=self.folder, next_step=_COPY)
        try:
            return _compiled(self.template).render(
                messages=messages, add_generation_prompt=add_generation_prompt, **self.special_tokens
            )
        except Exception as error:  # a template is a program, and may raise what it likes
            raise CheckpointError(
                f"its chat template failed ({str(error)[:200]})",
                where=self.folder,
                next_step="check the roles and order of the messages",
            ) from error

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the rendered prompt. The template writes the special tokens, so the tokenizer adds none."""
        return self.encode(self.render(messages), add_special_tokens=False)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))


def load_chat(folder: Path) -> Chat:
    """Read ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja`` of a model folder.

    Raises
    ------
    CheckpointError
        When ``tokenizer.json`` is missing or cannot be used.
    MissingToolError
        When the ``tokenizers`` package is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingToolError(
            "chat templates need the tokenizers package", next_step='pip install "eagle3-workbench[reference]"'
        ) from error
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError("missing", where=path, next_step=_COPY)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    # The library raises bare Exception.
    except Exception as error:
        raise CheckpointError(f"not a usable tokenizer ({str(error)[:200]})", where=path, next_step=_COPY) from error
    config = _read_config(folder / "tokenizer_config.json")
    specials = {key: _token_text(value) for key, value in config.items() if key.endswith("_token")}
    named = {key: text for key, text in specials.items() if text is not None}
    return Chat(folder, tokenizer, _template(folder, config), named)


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    environment.globals["raise_exception"] = _raise
    return environment.from_string(template)


def _template(folder: Path, config: Mapping[str, object]) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        try:
            return read_small(beside).decode()
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot be read ({error})", where=beside, next_step=_COPY) from error
    stated = config.get("chat_template")
    if isinstance(stated, list):
        named = {item.get("name"): item.get("template") for item in stated if isinstance(item, dict)}
        stated = named.get(_DEFAULT)
    return stated if isinstance(stated, str) else None


def _token_text(value: object) -> str | None:
    """A token is a string, or an object that describes one."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _read_config(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        config = from_json(read_small(path))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"not valid JSON ({str(error)[:200]})", where=path, next_step=_COPY) from error
    return config if isinstance(config, dict) else {}


def _raise(message: str) -> None:
    raise TemplateError(message)
