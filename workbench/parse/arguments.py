"""The server_args line: pieces of a Python repr, and their values as far as they are literals."""

from __future__ import annotations

import ast
import re
import warnings

MAX_ARGUMENTS = 5000
_MAX_LITERAL = 20_000

_TOKEN = re.compile(
    r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|[\[({]|[\])}]|,|[^'"\[\](){},]+""",
    re.DOTALL,
)
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)=(.*)", re.DOTALL)  # ServerArgs(model_path='...')
_DICT_ITEM = re.compile(r"\s*'([A-Za-z_]\w*)': ?(.*)", re.DOTALL)  # {'model_path': '...'}
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_PLAIN_STRING = re.compile(r"'([^'\\\n]*)'")
_NAMES: dict[str, object] = {"None": None, "True": True, "False": False}


def split_arguments(text: str, start: int) -> tuple[dict[str, str], bool]:
    """Arguments of ``ServerArgs(...)`` or ``{...}`` as printed, from just behind the opening bracket.

    One that is not followed by a comma or the closing bracket may be cut and is left out; so is one that is no
    ``name=value``. The first of two equal names stays. The second item returned says whether the bracket closed.
    """
    found: dict[str, str] = {}
    depth = 1
    begin = position = start
    while depth > 0 and len(found) < MAX_ARGUMENTS:
        token = _TOKEN.match(text, position)
        if token is None:
            break
        position = token.end()
        mark = token[0]
        depth += (mark in "[({") - (mark in "])}") if len(mark) == 1 else 0
        if depth == 0 or (depth == 1 and mark == ","):
            _keep(text[begin : token.start()], found)
            begin = position
    return found, depth == 0


def _keep(piece: str, found: dict[str, str]) -> None:
    match = _KEYWORD.fullmatch(piece) or _DICT_ITEM.fullmatch(piece)
    if match is not None:
        found.setdefault(match[1], match[2].strip())


def literal(text: str) -> object:
    """The Python value of a literal; any other text stays as it is. Nothing is ever evaluated."""
    if text in _NAMES:
        return _NAMES[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    plain = _PLAIN_STRING.fullmatch(text)
    if plain is not None:
        return plain[1]
    if len(text) > _MAX_LITERAL:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes in a text that is not ours
            value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value
