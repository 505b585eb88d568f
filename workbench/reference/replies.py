"""Bodies of ``/generate`` replies, whole or streamed, with the fields of SGLang 0.5.14."""

from __future__ import annotations

import time

from workbench.chat import Chat
from workbench.reference.scheduler import Job

_INCOMPLETE = "\ufffd"


class Reply:
    """What to send of a job. Not for two threads at once.

    Parameters
    ----------
    num_draft_tokens
        None without speculation.
    interval
        Tokens that must have come before the next chunk of a stream.
    incremental
        Whether a chunk holds only what is new, instead of everything so far.
    """

    def __init__(
        self, job: Job, chat: Chat | None, *, num_draft_tokens: int | None, interval: int, incremental: bool
    ) -> None:
        self._job = job
        self._chat = chat
        self._num_draft_tokens = num_draft_tokens
        self._interval = interval
        self._incremental = incremental
        self._sent_ids = 0
        self._sent_text = 0
        self.finished = False

    def has_more(self) -> bool:
        """Call while holding the job."""
        return self._job.done or len(self._job.output_ids) >= self._sent_ids + self._interval

    def next(self) -> dict[str, object]:
        """The next chunk of a stream; after the last one `finished` is true."""
        with self._job.changed:
            ids, text = list(self._job.output_ids), self._text()
            body = self._body(ids, text)
            self.finished = self._job.done
        if self._incremental:
            body = {**body, "output_ids": ids[self._sent_ids :], "text": text and text[self._sent_text :]}
        self._sent_ids, self._sent_text = len(ids), len(text or "")
        return body

    def whole(self) -> dict[str, object]:
        with self._job.changed:
            return self._body(list(self._job.output_ids), self._text())

    def _body(self, ids: list[int], text: str | None) -> dict[str, object]:
        return {"text": text, "output_ids": ids, "meta_info": self._meta_info()}

    def _text(self) -> str | None:
        if self._chat is None:
            return None
        ids, reason = self._job.output_ids, self._job.finish_reason
        shown = ids[:-1] if reason is not None and reason["type"] == "stop" else ids
        text = self._chat.decode(shown, skip_special_tokens=self._job.request.skip_special_tokens)
        # A character whose bytes are still coming is held back.
        return text if reason is not None else text.rstrip(_INCOMPLETE)

    def _meta_info(self) -> dict[str, object]:
        job = self._job
        end = job.finished_at if job.finished_at is not None else time.perf_counter()
        return {
            "id": job.request.rid,
            "finish_reason": job.finish_reason,
            "prompt_tokens": len(job.request.input_ids),
            "weight_version": "default",
            "completion_tokens": len(job.output_ids),
            "cached_tokens": 0,
            "dp_rank": None,
            "e2e_latency": end - job.arrived,
            **self._spec_info(),
        }

    def _spec_info(self) -> dict[str, object]:
        """Absent, as in SGLang, when the answer needed no verify step. Some figures stand under two names in 0.5.14."""
        job = self._job
        if self._num_draft_tokens is None or not job.verify_calls:
            return {}
        proposed = job.verify_calls * (self._num_draft_tokens - 1)
        histogram = list(job.histogram)
        return {
            "spec_accept_rate": job.correct_drafts / proposed,
            "spec_accept_length": len(job.output_ids) / job.verify_calls,
            "spec_num_correct_drafts": job.correct_drafts,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": job.verify_calls,
            "spec_accepted_drafts": job.correct_drafts,
            "spec_proposed_drafts": proposed,
            "spec_correct_drafts_histogram": histogram,
            "spec_accept_histogram": histogram,
        }


def chunk(content: bytes) -> bytes:
    """One chunk of HTTP's chunked transfer coding; an empty one ends the body."""
    return b"%x\r\n%s\r\n" % (len(content), content)
