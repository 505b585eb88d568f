"""The quick way through a log: lines of a layout that was read once are matched by one expression.

A template only accepts lines that `batch.read_plain_line` reads to the same record (a test compares the two);
every other line goes there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from workbench.parse.batch import DECODE_FIELDS, PREFILL_FIELDS, Value, read_plain_line, to_decimal, to_flag, to_whole
from workbench.parse.lines import STAMP, TAGS, make_head
from workbench.parse.records import DecodeRecord, PrefillRecord

_MAX_TEMPLATES = 8
_VALUES: dict[Callable[[str], Value], tuple[str, Callable[[str], Value]]] = {
    to_whole: (r"([0-9]{1,18})", int),
    to_decimal: (r"([0-9]{1,18}\.[0-9]{2})", float),
    to_flag: (r"(True|False)", "True".__eq__),
}


_KINDS: dict[Callable[[str], Value], str] = {
    convert: kind for kind, (_, convert) in zip(("whole", "decimal", "flag"), _VALUES.values(), strict=True)
}
Span = tuple[int, int]

_OTHER = r"([0-9.]{0,18}[0-9]%?)"  # the value of a key without a field, if it is a number


@dataclass(frozen=True, slots=True)
class Template:
    make: Callable[..., DecodeRecord | PrefillRecord]
    pattern: re.Pattern[str]
    fields: tuple[tuple[int, str, Callable[[str], Value]], ...]
    others: tuple[tuple[int, str], ...]
    layout: tuple[str, ...]

    def read(self, text: str, line: int, offset: int) -> DecodeRecord | PrefillRecord | None:
        match = self.pattern.fullmatch(text)
        if match is None:
            return None
        values = match.groups()
        head = make_head(values[0], values[1])
        fields = {name: convert(values[group]) for group, name, convert in self.fields}
        extra = {key: values[group] for group, key in self.others}
        return self.make(line, offset, head.time, head.ranks, extra=extra, layout=self.layout, **fields)

    # Where things stand in a line of this layout: the same in every line that differs in nothing but digits.

    def stamp_span(self, text: str) -> Span:
        return self._match(text).span(1)

    def tag_span(self, text: str) -> Span:
        return self._match(text).span(2)

    def field_spans(self, text: str) -> Iterator[tuple[str, str, Span]]:
        """Field, kind of value (whole, decimal or flag), begin and end."""
        match = self._match(text)
        for group, name, convert in self.fields:
            yield name, _KINDS[convert], match.span(group + 1)

    def other_spans(self, text: str) -> Iterator[tuple[str, Span]]:
        match = self._match(text)
        for group, key in self.others:
            yield key, match.span(group + 1)

    def _match(self, text: str) -> re.Match[str]:
        match = self.pattern.fullmatch(text)
        assert match is not None, "another layout"
        return match


def template_of(text: str) -> Template | None:
    """The template of a line, ``None`` where it is no plain batch line or has an odd value."""
    record = read_plain_line(text, 0, 0)
    template = None if record is None else _template(record)
    return template if template is not None and template.pattern.fullmatch(text) else None


class PlainReader:
    """Reads lines that hold one record and nothing else, and remembers the layouts it met."""

    def __init__(self) -> None:
        self._templates: list[Template] = []

    def read(self, text: str, line: int, offset: int) -> DecodeRecord | PrefillRecord | None:
        for template in self._templates:
            record = template.read(text, line, offset)
            if record is not None:
                return record
        record = read_plain_line(text, line, offset)
        if record is not None and len(self._templates) < _MAX_TEMPLATES:
            self._learn(record)
        return record

    def _learn(self, record: DecodeRecord | PrefillRecord) -> None:
        template = _template(record)
        if template is not None and all(known.layout != template.layout for known in self._templates):
            self._templates.append(template)


def _template(record: DecodeRecord | PrefillRecord) -> Template | None:
    """None for a line that was cut, or that has an iteration number or an odd value: those are rare."""
    decode = isinstance(record, DecodeRecord)
    known = DECODE_FIELDS if decode else PREFILL_FIELDS
    *keys, end = record.layout[1:]
    usual = all(key in known or _NUMBER.fullmatch(record.extra.get(key, "")) for key in keys)
    if record.truncated or end == "?" or not usual or any(key in known for key in record.extra):
        return None
    return _compiled(decode, record.layout)


@lru_cache(maxsize=256)
def _compiled(decode: bool, layout: tuple[str, ...]) -> Template:
    known = DECODE_FIELDS if decode else PREFILL_FIELDS
    mark, *keys, end = layout
    values = [_VALUES[known[key][1]][0] if key in known else _OTHER for key in keys]
    pairs = ", ".join(f"{re.escape(key)}: {value}" for key, value in zip(keys, values, strict=True))
    start = rf"\[({STAMP})({TAGS})\] {'Decode' if decode else 'Prefill'} batch{re.escape(mark)} "
    tail = ", ?" if end == "," else ""
    return Template(
        make=DecodeRecord if decode else PrefillRecord,
        pattern=re.compile(rf"{start}{pairs}{tail}\r?\n"),
        fields=tuple((i, known[k][0], _VALUES[known[k][1]][1]) for i, k in enumerate(keys, 2) if k in known),
        others=tuple((i, key) for i, key in enumerate(keys, 2) if key not in known),
        layout=layout,
    )


_NUMBER = re.compile(_OTHER)
