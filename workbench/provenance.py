"""Where a page comes from: code version, library versions, input files, command. Unknown stays unknown."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from workbench import __version__
from workbench.errors import UsageError
from workbench.files import as_text
from workbench.hashes import hash_file, hash_folder
from workbench.paths import WORKING, project_root
from workbench.spec import SECRET_FLAGS, is_secret_variable

LIBRARIES = ("pandas", "matplotlib", "papermill", "nbconvert")
_BEGIN = r"(?:\b|(?<=\\[nrt]))"  # also behind a line break that JSON or Python has written as two letters
SECRETS = (
    rf"{_BEGIN}(?:hf_|gh[pousr]_|github_pat_|xox[abprs]-|AKIA)([A-Za-z0-9_-]{{16,}})",
    rf"{_BEGIN}sk-([A-Za-z0-9_-]{{20,}})",
    rf"{_BEGIN}Bearer ([A-Za-z0-9._~+/=-]{{8,}})",
    r"://([^\s/@'\"]{1,200}:[^\s/@'\"]{1,200})@",
    rf"\b(?:{'|'.join(sorted(SECRET_FLAGS - {'token'}))})\\?['\"]? ?[=:] ?\\?['\"]([^'\"\n]{{4,500}}?)\\?['\"]",
)
"""Patterns of secrets that nobody named: access tokens, passwords in URLs, printed arguments. Group 1 is secret."""
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
    for value in _own_secrets():
        text = text.replace(value, "***")
    for pattern in _SECRETS:
        text = pattern.sub(lambda found: found[0].replace(found[1], "***"), text)
    return text


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
