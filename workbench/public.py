"""Texts that may leave this machine: without its folders, its name and secrets, in whatever way these are written."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from html.entities import codepoint2name
from pathlib import Path
from urllib.parse import unquote

from workbench.paths import project_root
from workbench.provenance import redact

# What stands inside a page: downloads and pictures; what a reader does not see; attributes that say or name something.
_DATA = re.compile(
    r"(data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+=%-]+)*;base64,)((?:[A-Za-z0-9+/=\r\n]|%[0-9a-f]{2})+)", re.IGNORECASE
)
_MARKUP = re.compile(
    r"<(?:style|script)\b.*?</(?:style|script)\s*>|<[a-z/!?](?:\"[^\"]*\"|'[^']*'|[^\"'>])*>", re.IGNORECASE | re.DOTALL
)
_UNSEEN = re.compile(r"<(?:style|script|meta)\b", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"(\s(alt|title|aria-label|download|href|src)\s*=\s*)(\"[^\"]*\"|'[^']*')", re.IGNORECASE)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?', re.DOTALL)
# A name begins behind an escape, too, though that ends in a letter.
_BEGIN = r"(?:(?<![\w.-])|(?<=_)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))"
_FOLDER_END = r"(?![\w-]|\.\w)"
_HOST_END = r"(?![^\W_]|-)"
_MODEL = re.compile(r"[a-z]{1,2}\d+[a-z]?", re.IGNORECASE)  # h200, k25: names of GPUs and models as well


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Made for this machine by `cleaner`; ``host`` is ``None`` where its name could be a word of any page."""

    folders: tuple[tuple[re.Pattern[str], str], ...]
    host: re.Pattern[str] | None

    def page(self, text: str) -> str:
        """Markup: the host only where a reader sees it, so that tags, styles and links stay what they are."""
        text = _parts(_DATA, text, self._data, self._between_data)
        return _parts(_MARKUP, text, lambda found: self._tag(found[0]), self._without_host)

    def json(self, text: str) -> str:
        """JSON as it was written, with other strings; keys may lose a folder, never the host."""
        return _parts(_STRING, redact(text), self._string, self._without_names)

    def text(self, text: str) -> str:
        return self._without_names(redact(text))

    def _without_names(self, text: str) -> str:
        return self._without_host(self._without_folders(text))

    def _without_folders(self, text: str) -> str:
        for pattern, short in self.folders:
            text = pattern.sub(short, text)
        return text

    def _between_data(self, text: str) -> str:
        return self._without_folders(redact(text))

    def _without_host(self, text: str, name: str = "(this machine)") -> str:
        return text if self.host is None else self.host.sub(name, text)

    def _data(self, found: re.Match[str]) -> str:
        """A download; pictures of pixels are left as they are."""
        kind = (found[2] or "text/plain").lower()
        if kind.startswith("image/") and "svg" not in kind:
            return found[0]
        packed = "".join(unquote(found[3]).split())
        try:
            data = base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
        except binascii.Error:
            return self._between_data(found[0])
        clean = self.page if re.search("html|xml", kind) else self.json if "json" in kind else self.text
        text, encoding = _decoded(data)
        public = clean(text)
        return found[0] if public == text else found[1] + base64.b64encode(public.encode(encoding)).decode()

    def _string(self, found: re.Match[str]) -> str:
        colon = found[1] or ""
        try:
            text = json.loads(found[0].removesuffix(colon), strict=False)
        except ValueError:
            return self._without_folders(found[0])
        public = self._without_folders(text) if colon else self._without_names(text)
        # Half a surrogate pair can only be written as an escape.
        return found[0] if public == text else json.dumps(public, ensure_ascii="\\u" in found[0]) + colon

    def _tag(self, tag: str) -> str:
        return tag if _UNSEEN.match(tag) else _ATTRIBUTE.sub(self._attribute, tag)

    def _attribute(self, found: re.Match[str]) -> str:
        # Addresses within these pages stay what they are, and so do downloads, which were cleaned by themselves.
        if found[2].lower() in ("href", "src"):
            is_ours = "://" not in found[3] and "data:" not in found[3]
            if is_ours or ";base64," in found[3]:
                return found[0]
        return found[1] + self._without_host(found[3], "this-machine")


def cleaner() -> Cleaner:
    folders = {str(way): short for folder, short in _own_folders() for way in (folder, folder.resolve())}
    patterns = [
        (re.compile(_BEGIN + "".join(map(_any_form, folder)) + _FOLDER_END), folders[folder])
        for folder in sorted(folders, key=len, reverse=True)
        if len(folder) > 1
    ]
    return Cleaner(tuple(patterns), _host_pattern())


def _parts(
    pattern: re.Pattern[str], text: str, of_found: Callable[[re.Match[str]], str], of_rest: Callable[[str], str]
) -> str:
    parts, end = [], 0
    for found in pattern.finditer(text):
        parts += [of_rest(text[end : found.start()]), of_found(found)]
        end = found.end()
    return "".join([*parts, of_rest(text[end:])])


def _decoded(data: bytes) -> tuple[str, str]:
    """Bytes as text, and its encoding; any bytes at all are latin-1."""
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def _own_folders() -> list[tuple[Path, str]]:
    folders = [(project_root(), ".")]
    with contextlib.suppress(RuntimeError):  # no home
        folders.append((Path.home(), "~"))
    return folders


def _any_form(letter: str) -> str:
    """A pattern for one letter as it is, in HTML, in an address, in JSON or in Python."""
    code = ord(letter)
    coded = [f"&#0*{code};", f"&#x0*{code:x};", "".join(f"%{byte:02x}" for byte in os.fsencode(letter))]
    coded += [rf"\\u{code:04x}", rf"\\u{code:08x}"]
    coded += [re.escape(json.dumps(letter)[1:-1])] if code > 127 or letter in '"\\' else []
    coded += [rf"\\x{code:02x}", f"%{code:02x}"] if code < 256 else []
    forms = [re.escape(letter), f"(?i:{'|'.join(coded)})"]
    forms += [r"\\/"] if letter == "/" else []
    forms += [f"&{codepoint2name[code]};"] if code in codepoint2name else []
    return f"(?:{'|'.join(forms)})"


def _host_pattern() -> re.Pattern[str] | None:
    """This machine's name, in full and up to its first dot."""
    full = socket.gethostname()
    names = [name for name in dict.fromkeys((full, full.partition(".")[0])) if _is_distinctive(name)]
    if not names:
        return None
    return re.compile(f"{_BEGIN}(?:{'|'.join(map(re.escape, names))}){_HOST_END}", re.IGNORECASE)


def _is_distinctive(name: str) -> bool:
    is_general = name.lower().startswith("localhost") or _MODEL.fullmatch(name) is not None
    return not is_general and re.search(r"[a-z]", name, re.IGNORECASE) is not None and bool(re.search(r"[\d.-]", name))
