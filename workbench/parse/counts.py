"""Running counts of what was read and what was not understood."""

from __future__ import annotations

from workbench.parse.records import ParseCounts

HINT_BYTES = 1 << 16

# What the beginning of a foreign text looks like, first match wins. The first three need the exact start of the file.
_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip data (unpack it first)"),
    (b"PK\x03\x04", "a zip archive (unpack it first)"),
    (b"\xff\xfe", "UTF-16 text (convert it to UTF-8 first)"),
)
_NEEDLES: tuple[tuple[bytes, str], ...] = (
    (b"Serving Benchmark Result", "the client-side output of bench_serving"),
    (b"server_args=", "an SGLang server log"),
    (b"sglang", "an SGLang log"),
    (b"vLLM API server", "a vLLM server log"),
    (b"vllm", "a vLLM log"),
    (b"TensorRT-LLM", "a TensorRT-LLM log"),
    (b"text_generation_launcher", "a text-generation-inference log"),
    (b"llama_model_loader", "a llama.cpp log"),
    (b"Uvicorn running on", "a web server log without engine lines"),
    (b"HTTP/1.1", "an HTTP access log"),
)


class CountsBuilder:
    """Counts that the readers raise while they stream; `counts` is the state so far."""

    __slots__ = (
        "_head",
        "bytes",
        "decode",
        "lines",
        "overlong_lines",
        "prefill",
        "truncated",
        "undecodable_bytes",
        "unparsed_batch_lines",
    )

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.decode = 0
        self.prefill = 0
        self.truncated = 0
        self.undecodable_bytes = 0
        self.unparsed_batch_lines = 0
        self.overlong_lines = 0
        self._head = b""

    def see_block(self, block: bytes) -> None:
        """Note the beginning of the text, whatever the sizes of the chunks it comes in."""
        self.bytes += len(block)
        if len(self._head) < HINT_BYTES:
            self._head += block[: HINT_BYTES - len(self._head)]

    def counts(self) -> ParseCounts:
        return ParseCounts(
            lines=self.lines,
            bytes=self.bytes,
            decode=self.decode,
            prefill=self.prefill,
            truncated=self.truncated,
            undecodable_bytes=self.undecodable_bytes,
            unparsed_batch_lines=self.unparsed_batch_lines,
            overlong_lines=self.overlong_lines,
            hint=_hint(self._head),
        )


def _hint(head: bytes) -> str:
    for start, meaning in _STARTS:
        if head.startswith(start):
            return meaning
    return next((meaning for needle, meaning in _NEEDLES if needle in head), "")
