"""Named prompt sets with their licence and source, and the user's own files.

A shipped set is ``data/prompts/NAME.jsonl`` or ``NAME.jsonl.gz``: a first line ``{"name", "source", "licence"}``, then
one prompt a line, ``{"text", "task"}``. A file of the user needs no first line; a prompt is an object with ``text``,
``prompt`` or ``turns`` (the first turn is taken), and ``task`` or ``category`` where known.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.errors import InputError
from workbench.files import as_text, is_file, read_small
from workbench.paths import prompts_dir, slug, under_root

# Sets that are not shipped, and why not stands in data/prompts/README.md.
FETCHED = ("ifbench",)
NOT_STATED = "not stated"
PLAIN, PACKED = ".jsonl", ".jsonl.gz"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. ``index`` pairs the arms of a comparison; ``input_ids`` are of the text in its chat template."""

    index: int
    text: str
    task: str = NOT_STATED
    input_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in the order in which they are sent."""

    name: str
    source: str
    licence: str
    prompts: tuple[Prompt, ...]


def prompt_set(name_or_path: str | Path) -> PromptSet:
    """A shipped set by its name, or the user's JSONL file.

    Raises
    ------
    InputError
        When there is no such set or file, or when any of its lines is no prompt: a set that lost some would no longer
        be the same workload.
    """
    if is_file_name(name_or_path):
        return _read(Path(under_root(str(name_or_path))))
    name = str(name_or_path)
    for ending in (PLAIN, PACKED):
        if is_file(path := prompts_dir() / f"{name}{ending}"):
            return _read(path)
    raise _unknown(name)


def is_file_name(name_or_path: str | Path) -> bool:
    """Whether this is the path of a user's file and no name of a shipped set."""
    path = Path(name_or_path)
    return path.name.endswith((PLAIN, PACKED)) or len(path.parts) > 1


def run_name(name_or_path: str) -> str:
    """What runs call a set: its name; for a user's file its stem and a hash of its bytes, since files change."""
    if not is_file_name(name_or_path):
        return name_or_path
    path = Path(under_root(name_or_path))
    try:
        return f"{slug(_stem(path))}-{hashlib.sha256(read_small(path)).hexdigest()[:8]}"
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"no prompts: {what}", where=path) from error


def prompt_set_names() -> tuple[str, ...]:
    return tuple(sorted({_stem(path) for ending in (PLAIN, PACKED) for path in prompts_dir().glob(f"*{ending}")}))


def with_token_ids(prompts: Sequence[Prompt], encode: Callable[[str], Sequence[int]]) -> tuple[Prompt, ...]:
    """The same prompts with the token ids that ``encode`` makes of their texts."""
    return tuple(replace(prompt, input_ids=tuple(encode(prompt.text))) for prompt in prompts)


def _unknown(name: str) -> InputError:
    if name in FETCHED:
        return InputError(
            f"prompt set {name!r} is not shipped", next_step=f"fetch it with `python tools/build_prompts.py {name}`"
        )
    known = (*prompt_set_names(), *FETCHED)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(
        f"no prompt set {name!r}", next_step=f"{hint}There are {', '.join(known)}; or give the path of a .jsonl file"
    )


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(PLAIN)


def _read(path: Path) -> PromptSet:
    try:
        text = read_small(path, unpack=True).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"cannot be read ({error})", where=path) from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    head = _object(lines[0][1]) if lines else None
    about: Mapping[str, object] = {}
    if head is not None and "licence" in head and _text(head) is None:
        about, lines = head, lines[1:]
    prompts = tuple(Prompt(index, *content) for index, content in enumerate(_contents(lines, path)))
    if not prompts:
        raise InputError("holds no prompts", where=path, next_step='one prompt a line: {"text": "..."}')
    stated = {"name": _stem(path), "source": path, "licence": NOT_STATED, **about}
    name, source, licence = (as_text(str(stated[key])) for key in ("name", "source", "licence"))
    return PromptSet(name, source, licence, prompts)


def _contents(lines: Sequence[tuple[int, str]], path: Path) -> Iterator[tuple[str, str]]:
    """Text and task of every line."""
    content = [(number, _object(line)) for number, line in lines]
    bad = [number for number, item in content if item is None or _text(item) is None]
    if bad:
        raise InputError(
            f"{len(bad)} of {len(content)} lines are no prompts, the first is line {bad[0]}",
            where=f"{path}:{bad[0]}",
            next_step='a prompt is a JSON object with "text", "prompt" or "turns", on one line, in whole characters',
        )
    for _, item in content:
        assert item is not None
        yield _text(item) or "", as_text(str(item.get("task") or item.get("category") or NOT_STATED))


def _object(line: str) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(item: Mapping[str, object]) -> str | None:
    """The prompt, ``None`` when there is none, it is blank or holds half a character (a surrogate without another)."""
    turns = item.get("turns")
    first = turns[0] if isinstance(turns, list) and turns else None
    text = next((value for value in (item.get("text"), item.get("prompt"), first) if isinstance(value, str)), None)
    return text if text and text.strip() and as_text(text) == text else None
