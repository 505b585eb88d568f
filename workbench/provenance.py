"""Where a page comes from: code version, library versions, input files, command. Unknown stays unknown."""

from __future__ import annotations

import contextlib
import html
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from markupsafe import escape

from workbench import __version__
from workbench.errors import UsageError
from workbench.files import as_text
from workbench.hashes import hash_file, hash_folder
from workbench.paths import WORKING, project_root
from workbench.spec import SECRET_FLAGS, is_secret_variable

LIBRARIES = ("pandas", "matplotlib", "papermill", "nbconvert")
# A letter that they begin with comes first and alone: a log of gigabytes is then passed in half the time.
_PREFIX = (
    r"[hgxAsn](?:(?<=\b.)|(?<=\\[nrt].))"  # also behind a line break that JSON or Python has written as two letters
    r"(?:(?<=h)f_(?=[A-Za-z0-9]{16})|(?:(?<=g)h[pousr]_|(?<=g)ithub_pat_|(?<=x)ox[abprs]-|(?<=A)KIA)(?=[A-Za-z0-9_-]{16})"
    r"|(?<=s)k-(?=[A-Za-z0-9_-]{20})|(?:(?<=n)vapi|(?<=g)lpat)-(?=[A-Za-z0-9_-]{8}))"
)
_NAME = (
    r"[aAhHpPS_](?:(?i:(?<=a)pi[_-]?key|(?<=h)f[_-]token|(?<=p)assword|(?<=a)uthorization)|(?<=A)CCESS_KEY"
    r"|(?<=S)ECRET(?:_KEY)?|(?<=P)RIVATE_KEY|(?<=P)ASSWD|(?<=P)ASSPHRASE|(?<=_)(?:TOKEN|PASS|PAT))"
)
_QUOTE = r"(?:['\"]|&(?:#3[49]|#x27|quot|apos);)"
# Quotes may have backslashes in front, where a text stands in a text. The secret ends at the next with as many: quotes
# of its own have more. One that ends with a backslash so hides what follows it, too.
_QUOTED = rf"(\\{{0,15}}+)({_QUOTE})((?:(?!\2)[^\\\n]|(?!\1\2)\\++.){{4,1000}}+)"
_PARAMETER = r"(?i:(?:access_|auth_)?token|api[_-]?key|(?:client_)?secret|password|passwd|sig|signature)"
_FLAG = "|".join(name.replace("_", "[_-]") for name in sorted(SECRET_FLAGS))
_NO_PROSE = r"(?!-|[a-z]++(?![\w-])|[A-Z_]++(?![\w-]))"  # no word of a sentence, no placeholder of a usage
SECRETS = (
    rf"{_PREFIX}([A-Za-z0-9_-]+)",
    r"(?:Bearer|uthorization: ?[Bb]asic) ([A-Za-z0-9._~+/=-]{8,})",
    r"://([^\s/@'\"]{1,200}:[^\s/@'\"]{1,200})@",
    rf"[?&\\](?:(?<=[?&])(?:amp;){{0,3}}|(?<=\\)u0026){_PARAMETER}=([^\s&'\"#<>\\]{{4,}})",
    rf"{_NAME}\\*+{_QUOTE}?(?: ?[=:] ?|, (?=b))\[?b?{_QUOTED}",
    rf"{_NAME}(?<=[A-Z])=([^\s'\"\\$<{{*][^\s'\"\\]{{5,}})",
    rf"--(?:{_FLAG})(?:=|\\*+{_QUOTE}?,? ++(?:\\*+{_QUOTE})?{_NO_PROSE})([^\s'\"\\]{{4,}})",
)
"""Patterns of secrets that nobody named: access tokens, passwords in URLs, printed arguments, headers and variables.

What is secret is the last group (`secret_span`). A log may be a single line of gigabytes: no repetition can be split in
two ways, so that they take linear time.
"""
_SECRETS = tuple(map(re.compile, SECRETS))
_SHORTEST_VALUE = 8  # of a variable that is looked for in any text; shorter ones are words of other meanings, too


@dataclass(frozen=True, slots=True)
class Facts:
    """Where a page comes from: the command that makes it, the code, the libraries, the inputs and their hashes."""

    command: str
    code: str
    versions: Mapping[str, str]
    inputs: tuple[tuple[str, str], ...]


def provenance_facts(
    *,
    inputs: Iterable[Path] = (),
    command: Sequence[str] | None = None,
    hashed: Callable[[Path], str] | None = None,
) -> Facts:
    """``inputs`` are files or folders whose contents are hashed; ``command`` defaults to this process's arguments.

    ``hashed`` takes the place of `hash_path` for whoever has asked it already.
    """
    return Facts(
        command=redact(shlex.join(command if command is not None else _command_line())),
        code=code_version(),
        versions=versions(),
        inputs=tuple((redact(str(path)), (hashed or hash_path)(path)) for path in inputs),
    )


def provenance_rows(facts: Facts) -> list[tuple[str, str]]:
    """Label and text of each line of a page's provenance block."""
    rows = [
        ("Command", facts.command),
        ("Code", facts.code),
        ("Versions", ", ".join(f"{name} {version}" for name, version in facts.versions.items())),
    ]
    return rows + [("Input", f"{path} (SHA-256 {digest})") for path, digest in facts.inputs]


def code_version() -> str:
    """Git commit of the project and whether its tracked files were changed since."""
    sha = _git("rev-parse", "--short=12", "HEAD")
    if sha is None:
        return f"workbench {__version__}, commit not known"
    changes = _git("status", "--porcelain", "--untracked-files=no")
    state = "" if changes == "" else ", with uncommitted changes" if changes else ", changes not known"
    return f"workbench {__version__}, commit {sha}{state}"


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def hash_path(path: Path) -> str:
    """First 16 hex digits of the SHA-256 of a file, or of the names and hashes of all files in a folder.

    What a measuring command leaves in a campaign beside its data (`paths.WORKING`) does not count.
    """
    try:
        return (hash_folder(path, without=WORKING) if path.is_dir() else hash_file(path))[:16]
    except OSError as error:
        return f"not known: {error.strerror or error}"


def redact(text: str) -> str:
    """Text without this user's folders and without secrets: pages are made to be passed on.

    Bytes of a file name that are no text become escapes.
    """
    text = as_text(text)
    for folder, short in _private_folders():
        text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])", short, text)
    return without_secrets(text)


def without_secrets(text: str) -> str:
    """Text in which what looks like a secret is replaced, whoever wrote it, and this process's own secret variables."""
    for value in spellings(_own_secrets()):
        text = text.replace(value, "***")
    for pattern in _SECRETS:
        text = pattern.sub(_hidden, text)
    return text


def secret_span(found: re.Match[Any]) -> tuple[int, int]:
    """Where the secret stands in what one of `SECRETS` found."""
    return found.span(found.lastindex or 0)


def _hidden(found: re.Match[str]) -> str:
    start, end = secret_span(found)
    return f"{found.string[found.start() : start]}***{found.string[end : found.end()]}"


def spellings(values: Iterable[str]) -> list[str]:
    """The values and how Python, JSON, HTML and URLs write them, longest first: one may be a part of another."""
    return sorted({spelled for value in values for spelled in _spelled(value)}, key=len, reverse=True)


@lru_cache(maxsize=256)
def _spelled(value: str) -> frozenset[str]:
    data = os.fsencode(value)
    quoted = {repr(value)[1:-1], ascii(value)[1:-1], repr(data)[2:-1], json.dumps(value)[1:-1]}
    quoted |= {json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value), str(escape(value)), quote(data)}
    return frozenset({value, html.escape(value, quote=False), quote(data, safe=""), quote_plus(data), *quoted})


def _own_secrets() -> list[str]:
    """Values that servers repeat when they refuse a key, longest first."""
    named = {value for name, value in os.environ.items() if len(value) >= _SHORTEST_VALUE and is_secret_variable(name)}
    return sorted(named, key=len, reverse=True)


def _private_folders() -> list[tuple[str, str]]:
    folders: list[tuple[str, str]] = []
    with contextlib.suppress(UsageError):
        folders.append((str(project_root()), "."))
    with contextlib.suppress(RuntimeError):
        folders.append((str(Path.home()), "~"))
    return [(folder, short) for folder, short in folders if len(folder) > 1]


def _command_line() -> list[str]:
    program = Path(sys.argv[0] or "python")
    return ["workbench" if program.stem in ("workbench", "__main__") else program.name, *sys.argv[1:]]


def _git(*arguments: str) -> str | None:
    """Output of a git command in the project; ``None`` without git, outside a repository, or when it takes long."""
    try:
        command = ["git", "-C", str(project_root()), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError, UsageError):
        return None
    return done.stdout.strip()
