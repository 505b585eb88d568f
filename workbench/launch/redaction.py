"""Secrets that a server is given: kept out of records and messages, and out of its log once it has ended."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from workbench.provenance import SECRETS, redact, secret_span, spellings
from workbench.spec import is_secret_variable
from workbench.sweep.campaign_file import secret_arguments

HIDDEN = "***"
MIN_LENGTH = 6
"""Shorter values would be found everywhere."""

_PATTERNS = tuple(re.compile(pattern.encode()) for pattern in SECRETS)
_WORD = re.compile(r"\"([^\"]+)|'([^']+)|([^\s,;&|\"']+)")
_RECORDED_VARIABLE = re.compile(
    r"(?:NCCL|TORCH_NCCL|GLOO|CUDA|SGLANG|SGL|FLASHINFER|TORCHINDUCTOR|OMP|MKL)_|SIMULATE_ACC"
)


def secret_values(argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables and flags that are secret by their name, longest first."""
    found = {value for name, value in env.items() if is_secret_variable(name)}
    for _, value in secret_arguments(argv):
        found.add(value)
        if word := _WORD.match(value):  # more may follow it, as in a line for a shell
            found.add(value[slice(*secret_span(word))])
    return tuple(sorted((value for value in found if len(value) >= MIN_LENGTH), key=len, reverse=True))


def hide(text: str, secrets: Iterable[str]) -> str:
    """Text without these values, access tokens and this user's folders."""
    for value in spellings(secrets):
        text = text.replace(value, HIDDEN)
    return redact(text)


def shown_argv(argv: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
    """A command line that may be written down."""
    secrets = secret_values(argv, env or {})
    return [hide(argument, secrets) for argument in argv]


def recorded_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that bear on speed (NCCL, CUDA, SGLang, threads), by name, secrets hidden."""
    return {
        name: HIDDEN if is_secret_variable(name) else redact(value)
        for name, value in sorted(env.items())
        if _RECORDED_VARIABLE.match(name)
    }


def blank_out(path: Path, secrets: Iterable[str]) -> int:
    """Overwrite these values, and what looks like a secret, by asterisks, so that byte offsets stay; how many were."""
    if not path.is_file() or path.stat().st_size == 0:
        return 0
    count = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for value in map(os.fsencode, spellings(secrets)):
            at = content.find(value)
            while at >= 0:
                content[at : at + len(value)] = b"*" * len(value)
                count += 1
                at = content.find(value, at + len(value))
        for pattern in _PATTERNS:
            for start, end in [secret_span(found) for found in pattern.finditer(content)]:
                count += content[start:end].strip(b"*") != b""
                content[start:end] = b"*" * (end - start)
    return count
