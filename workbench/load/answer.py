"""What ``/generate`` answers, whole or as a stream of events, of every SGLang version. Opens nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.provenance import without_secrets

# The histogram of correct drafts a verify step: the first name since 0.5.12, the other one in 0.5.9 to 0.5.20.
HISTOGRAM_NAMES = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_SHOWN = 200
_LOOKED_AT = 8192
_LONGEST_REASON = 40
_REASONS = ("stop", "length", "abort")  # SGLang's own

_MOST_SECONDS = 1e9
_OUTPUT = re.compile(rb'"(?:text|output_ids)"')


class AnswerFault(Exception):
    """An answer that is none; ``kind`` is what failures are counted by."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")


_SPARE_TOKENS = 1024  # the drafts of a last verify step, as far as any version lets them stand
MOST_BYTES = 64 << 20
"""Of one answer, or one event of it: more is not held in memory."""


@dataclass(slots=True)
class Answer:
    """One answer, complete. ``arrivals`` is empty unless streamed: (time, tokens so far) of every event with tokens."""

    text: str | None = None
    output_ids: list[int] | None = None
    meta: Mapping[str, object] = field(default_factory=dict)
    arrivals: list[tuple[float, int]] = field(default_factory=list)

    def count(self, name: str) -> int | None:
        value = self.meta.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def e2e_latency_s(self) -> float | None:
        value = self.meta.get("e2e_latency")
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        # A whole number may have more digits than a float has room for.
        return float(value) if abs(value) < _MOST_SECONDS else None

    @property
    def finish_reason(self) -> str | None:
        reason = self.meta.get("finish_reason")
        kind = reason.get("type") if isinstance(reason, dict) else reason
        # Looking for secrets takes longer than everything else about an answer.
        return kind if kind is None or kind in _REASONS else shown(str(kind), _LONGEST_REASON)

    @property
    def histogram(self) -> tuple[int, ...] | None:
        """Verify steps by number of correct drafts; ``None`` without speculation."""
        for name in HISTOGRAM_NAMES:
            value = self.meta.get(name)
            if isinstance(value, list) and all(type(steps) is int and steps >= 0 for steps in value):
                return tuple(value)
        return None

    @property
    def text_hash(self) -> str | None:
        return None if self.text is None else hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()[:16]


def read_answer(body: bytes, most_tokens: int) -> Answer:
    """The answer of a request for at most so many tokens that was not streamed.

    Raises
    ------
    AnswerFault
        When it is an error message, no JSON, or not an answer to one prompt.
    """
    event = _event(body)
    answer = Answer(_text(event), _ids(event), _meta(event))
    return _checked(answer, most_tokens)


class EventReader:
    """Collects a streamed answer from bytes that arrive in pieces of any size.

    SGLang sends the text and token ids so far with every event, or only what is new
    (``--incremental-streaming-output``); ``completion_tokens`` always counts all of them. Which it is shows in the
    first event after other tokens: as many ids as ``completion_tokens`` says, or fewer; without ids, whether its text
    goes on from the text so far.
    """

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._answer = Answer()
        self._rest = b""
        self._tokens = 0
        self._incremental: bool | None = None
        self._done = False

    def feed(self, chunk: bytes, at: float) -> None:
        """Take the bytes that arrived ``at``.

        Raises
        ------
        AnswerFault
            When an event is an error message or no JSON.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            raise AnswerFault("not an answer", f"a line of more than {MOST_BYTES:,} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                self._data(line[5:].strip(), at)

    def finish(self) -> Answer:
        """The whole answer, when the server has closed the stream.

        Raises
        ------
        AnswerFault
            When the stream ended before the answer did.
        """
        rest = self._rest.strip()
        if not (self._done or self._answer.finish_reason):
            what = f"after {self._tokens} tokens" if self._tokens else "before the first token"
            tail = f", with {len(rest):,} bytes of an event left" if rest else ""
            raise AnswerFault("cut off", f"the stream ended {what}{tail}")
        return _checked(self._answer, self._most_tokens)

    def _data(self, data: bytes, at: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        event = _event(data)
        meta = _meta(event)
        tokens = meta.get("completion_tokens")
        new = _possible(tokens, self._most_tokens) - self._tokens if isinstance(tokens, int) else 0
        self._join(_text(event), _ids(event), new)
        self._answer.meta = meta
        if new > 0:
            self._tokens += new
            self._answer.arrivals.append((at, self._tokens))

    def _join(self, text: str | None, ids: list[int] | None, new: int) -> None:
        answer = self._answer
        if self._incremental is None and self._tokens and new > 0:
            self._incremental = self._is_new_only(text, ids, new)
        if text is not None:
            answer.text = (answer.text or "") + text if self._incremental else text or answer.text or ""
            if len(answer.text) > MOST_BYTES:
                raise AnswerFault("not an answer", f"a text of more than {MOST_BYTES:,} characters")
        if ids is not None:
            answer.output_ids = (answer.output_ids or []) + ids if self._incremental else ids or answer.output_ids

    def _is_new_only(self, text: str | None, ids: list[int] | None, new: int) -> bool:
        if ids:
            return abs(len(ids) - new) < abs(len(ids) - self._tokens - new)
        return text is not None and not text.startswith(self._answer.text or "")


def _event(data: bytes) -> dict[str, object]:
    try:
        event = json.loads(data.decode())  # given bytes, json.loads would first guess their encoding
    except (ValueError, RecursionError) as error:
        raise AnswerFault("not JSON", f"{_cut(data)} ({type(error).__name__})") from error
    if not isinstance(event, dict):
        raise AnswerFault("not an answer", _cut(data))
    if "error" in event:
        raise AnswerFault("error in the answer", _message(event["error"]))
    return event


def _checked(answer: Answer, most_tokens: int) -> Answer:
    reason = answer.meta.get("finish_reason")
    if answer.finish_reason == "abort":
        raise AnswerFault("aborted", _message(reason))
    tokens = answer.count("completion_tokens")
    if tokens is None:
        raise AnswerFault("not an answer", "meta_info says no completion_tokens")
    _possible(tokens, most_tokens)
    if not all(type(token) is int for token in answer.output_ids or ()):
        answer.output_ids = None
    return answer


def _possible(tokens: int, most: int) -> int:
    """A number of tokens that such an answer can have: for each of them there is an entry in its record."""
    if not 0 <= tokens <= most + _SPARE_TOKENS:
        raise AnswerFault("not an answer", f"meta_info says {str(tokens)[:20]} completion_tokens, asked for {most}")
    return tokens


def _meta(event: Mapping[str, object]) -> Mapping[str, object]:
    meta = event.get("meta_info")
    return meta if isinstance(meta, dict) else {}


def _text(event: Mapping[str, object]) -> str | None:
    text = event.get("text")
    return text if isinstance(text, str) else None


def _ids(event: Mapping[str, object]) -> list[int] | None:
    ids = event.get("output_ids")
    return ids if isinstance(ids, list) else None


def _message(error: object) -> str:
    message = error.get("message", error) if isinstance(error, dict) else error
    return shown(str(message), _SHOWN)


def _cut(data: bytes) -> str:
    """The beginning, without what the model said: of that only a hash is kept."""
    data = _OUTPUT.split(data[:_LOOKED_AT], maxsplit=1)[0]
    return repr(shown(data.decode("utf-8", "replace"), _SHOWN))


def shown(text: str, most: int) -> str:
    """The beginning of what a server said, without secrets: half a one would not look like one."""
    return without_secrets(text[:_LOOKED_AT])[:most]
