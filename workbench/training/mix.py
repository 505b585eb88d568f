"""A set of prompts to train on: the default mix, or the user's own files, cleaned the same way.

`build` is the main flow. The order is by hash of the text, so any first part is a fair sample and the same sources
give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import InputError, UsageError
from workbench.files import replacing
from workbench.packaged import PACKAGED, packaged_lines
from workbench.prompts import PACKED, is_file_name, prompt_set, prompt_set_names
from workbench.provenance import redact
from workbench.training.overlap import HeldOut
from workbench.training.sources import SOURCES, Candidate, Source
from workbench.wheels import opened

NAME = "training_mix"
HELD_OUT = ("mt_bench", "humaneval", "ifbench", "written")
"""Sets that drafters are judged by."""
SHORTEST, LONGEST = 20, 1200
_ASCII_SHARE = 0.97
_COMMON_SHARE = 0.12
_COMMON_WORDS = """
a about all an and any are as at be been but by can could did do does for from get give given had has have he her
his how i if in into is it its just like make me more my no not of on one only or out she should so some than that
the their them then there these they this to up use was we were what when where which who will with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())
_WORD = re.compile(r"[a-z']+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd\ud800-\udfff]")
# E-mail addresses, telephone numbers: of people who wrote in the dialogues.
_PERSONAL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|\+?\d[\d ()./-]{8,}\d")
_PRIVATE_SOURCES = frozenset({"chitchat"})


@dataclass
class Counts:
    """What became of the candidates: ``removed`` by reason, in the order of the checks; ``taken`` by source."""

    candidates: int = 0
    removed: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    tasks: int = 0

    def lines(self) -> list[str]:
        taken = ", ".join(f"{name} {count:,}" for name, count in self.taken.items())
        gone = ", ".join(f"{reason} {count:,}" for reason, count in self.removed.items()) or "none"
        total = sum(self.taken.values())
        return [f"{total:,} prompts of {self.tasks} tasks ({taken})", f"left out of {self.candidates:,}: {gone}"]


def build(
    out: Path,
    *,
    files: Sequence[Path] = (),
    wheels: Path | None = None,
    per_task: int | None = None,
    any_language: bool = False,
    sources: Sequence[Source] = SOURCES,
) -> Counts:
    """Write a prompt set, gzip where ``out`` ends in .gz.

    Parameters
    ----------
    files
        Prompt files of the user; without any the default mix is made from its packages.
    wheels
        Folder that holds the packages, instead of downloading them.
    per_task
        At most so many prompts of each task; the default mix has its own limits.
    any_language
        Do not ask for English.

    Raises
    ------
    InputError
        When a file or a package cannot be used, or nothing is left.
    """
    if not is_file_name(out) or not out.name.endswith((".jsonl", PACKED)):
        raise UsageError("a prompt set is a .jsonl or .jsonl.gz file", where=out, next_step="give such a name to --out")
    counts = Counts()
    limits = {s.name: s.per_task if per_task is None else per_task for s in sources} if not files else {}
    candidates = _of_files(files) if files else _of_sources(sources, wheels)
    held_out = HeldOut(_held_out_texts(wheels, fetch=not files))
    kept = _limited(
        _cleaned(candidates, counts, any_language=any_language), lambda c: limits.get(c.source, per_task), counts
    )
    chosen = _shuffled(_apart(kept, held_out, counts), "order")
    if not chosen:
        raise InputError("no prompt is left", where=out, next_step=" ".join(counts.lines()))
    counts.taken.update(c.source for c in sorted(chosen, key=lambda c: c.source))
    counts.tasks = len({c.task for c in chosen})
    _write(out, _head(out, files, sources), chosen)
    return counts


# --- where candidates come from ----------------------------------------------------------------------------------


def _of_sources(sources: Sequence[Source], wheels: Path | None) -> Iterator[Candidate]:
    for source in sources:
        with opened(source.wheel, wheels) as archive:
            yield from source.read(archive)


def _of_files(files: Sequence[Path]) -> Iterator[Candidate]:
    for path in files:
        found = prompt_set(path)
        for prompt in found.prompts:
            yield Candidate(found.name, f"{found.name}/{prompt.task}", prompt.text)


def _held_out_texts(wheels: Path | None, *, fetch: bool) -> Iterator[str]:
    """Prompts of the sets that are judged by; one that is not here is fetched, or else passed by."""
    here = prompt_set_names()
    for name in HELD_OUT:
        if name in here:
            yield from (prompt.text for prompt in prompt_set(name).prompts)
        elif fetch:
            yield from (line["text"] for line in packaged_lines(PACKAGED[name], wheels))


# --- what is kept ------------------------------------------------------------------------------------------------


def _cleaned(candidates: Iterable[Candidate], counts: Counts, *, any_language: bool) -> Iterator[Candidate]:
    seen: set[bytes] = set()
    for candidate in candidates:
        counts.candidates += 1
        text = candidate.text.replace("\r\n", "\n").strip()
        reason = _wrong_length(text)
        if reason is None:
            key = hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "replace")).digest()
            reason = "said before" if key in seen else _fault(candidate.source, text, any_language)
            seen.add(key)
        if reason is None:
            yield Candidate(candidate.source, candidate.task, text)
        else:
            counts.removed[reason] += 1


def _wrong_length(text: str) -> str | None:
    if SHORTEST <= len(text) <= LONGEST:
        return None
    return "too short" if len(text) < SHORTEST else "too long"


def _fault(source: str, text: str, any_language: bool) -> str | None:
    if _CONTROL.search(text):
        return "control characters"
    if not (any_language or is_english(text)):
        return "not English"
    if source in _PRIVATE_SOURCES and _PERSONAL.search(text):
        return "address or telephone number"
    return None


def _apart(candidates: Iterable[Candidate], held_out: HeldOut, counts: Counts) -> Iterator[Candidate]:
    for candidate in candidates:
        if held_out.resembles(candidate.text):
            counts.removed["near a held-out prompt"] += 1
        else:
            yield candidate


def is_english(text: str) -> bool:
    """Whether nearly all characters are ASCII and enough of the words are among the most common of English."""
    words = _WORD.findall(text.lower())
    ascii_share = len(text.encode("ascii", "ignore")) / max(1, len(text))
    return ascii_share >= _ASCII_SHARE and sum(w in _COMMON for w in words) >= _COMMON_SHARE * max(1, len(words))


def _limited(
    candidates: Iterable[Candidate], limit: Callable[[Candidate], int | None], counts: Counts
) -> Iterator[Candidate]:
    """At most so many of each task, chosen by hash."""
    by_task: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_task[candidate.task].append(candidate)
    for group in by_task.values():
        most = limit(group[0])
        yield from _shuffled(group, "choose")[:most]
        if most is not None and len(group) > most:
            counts.removed["beyond its task's limit"] += len(group) - most


def _shuffled(candidates: Iterable[Candidate], salt: str) -> list[Candidate]:
    """By hash. Who is chosen by one salt must be placed by another: large tasks would come first."""
    return sorted(candidates, key=lambda c: hashlib.sha256(f"{salt} {c.text}".encode("utf-8", "replace")).digest())


# --- writing -----------------------------------------------------------------------------------------------------


def _head(out: Path, files: Sequence[Path], sources: Sequence[Source]) -> dict[str, str]:
    name = out.name.removesuffix(".gz").removesuffix(".jsonl")
    if files:
        found = [prompt_set(path) for path in files]
        licences = "; ".join(dict.fromkeys(redact(one.licence) for one in found))
        return {"name": name, "source": ", ".join(path.name for path in files), "licence": licences}
    packages = ", ".join(source.wheel.package.replace("==", " ") for source in sources)
    licence = "; ".join(f"{source.name}: {source.licence}" for source in sources)
    return {"name": name, "source": f"PyPI {packages}", "licence": licence}


def _write(out: Path, head: dict[str, str], chosen: Sequence[Candidate]) -> None:
    rows: list[dict[str, str]] = [head, *({"source": c.source, "task": c.task, "text": c.text} for c in chosen)]
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "backslashreplace")
    with replacing(out) as temporary:
        # No time in the file: the same prompts, the same bytes.
        temporary.write_bytes(gzip.compress(data, 9, mtime=0) if out.name.endswith(".gz") else data)
