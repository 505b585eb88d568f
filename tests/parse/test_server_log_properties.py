"""What must hold for any text, any cut of a real log, any mixture of logs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import N4_GRAPH, N5_NO_GRAPH, N16_GRAPH, PLAIN_DECODE, PLAIN_PREFILL, recorded

from workbench.parse.records import LogEvent, Record
from workbench.parse.server_log import describe_kind, iter_records, parse_log

VLLM = (
    b"(APIServer pid=1) INFO 05-18 11:19:54 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.31, "
    b"Accepted throughput: 10.00 tokens/s, Accepted: 100 tokens, Drafted: 229 tokens, "
    b"Per-position acceptance rate: 0.800, 0.500, 0.010, Avg Draft acceptance rate: 43.7%\n"
    b"INFO 05-18 11:19:54 [loggers.py:1] Engine 000: Avg prompt throughput: 1.5 tokens/s, "
    b"Avg generation throughput: 90.2 tokens/s, Running: 13 reqs, Waiting: 1 reqs, GPU KV cache usage: 2.5%\n"
)
# The start of a recorded log (arguments, weights, graphs, progress bars, first batches) and lines of other versions.
LOG = b"".join(recorded("sim25-s3").splitlines(keepends=True)[:64]) + N4_GRAPH + N5_NO_GRAPH + N16_GRAPH + VLLM
OTHER = b"".join(recorded("base").splitlines(keepends=True)[40:60]) + PLAIN_PREFILL.encode()

FRAGMENTS = [
    *("Decode batch", "Prefill batch", ", ", ". ", "#running-req: ", "#token: ", "accept len: ", "gen throughput ("),
    *(
        "token/s): ",
        "12",
        "0.5",
        "True",
        "nan",
        "\n",
        "\r",
        "\r\n",
        "[2026-01-05 10:00:00",
        " TP0] ",
        "] ",
        "...",
        "\x1b[3",
    ),
    *("server_args=ServerArgs(", "server_args={", "'a': ", "a=", "'", '"', "(", ")", "Load weight end. type=", "GB"),
    *("SpecDecoding metrics: ", "Avg prompt throughput: ", "%", '{"log":"', "Capture ", "graph end. ", "Error", "pid="),
    *(
        "KV cache allocated. ",
        "max_total_num_tokens=1, ",
        "\x00",
        "\ufeff",
        "٣",
        "🦅",
        "\x1b[3",
        "] ",
        "\\",
        "=",
        ":",
        " ",
        "obj=",
    ),
]
texts = st.one_of(
    st.text(max_size=300),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5)), max_size=40).map("".join),
)


@given(texts)
@settings(max_examples=250, deadline=None)
def test_any_text(text: str) -> None:
    log = parse_log(text)
    assert describe_kind(log)
    assert log.counts.lines >= len({record.line for record in log.decode})
    assert log.counts.decode == len(log.decode)


@given(st.one_of(st.binary(max_size=300), texts.map(lambda text: text.encode("utf-8", "replace"))))
@settings(max_examples=150, deadline=None)
def test_any_bytes(data: bytes) -> None:
    assert parse_log(data).counts.bytes == len(data)


NOT_VALUES = {"truncated", "layout", "text", "time", "ranks", "extra", "fields", "line", "offset", "kind"}


def values(record: Record) -> dict[str, object]:
    """Everything a record claims to have read."""
    found = {f.name: getattr(record, f.name) for f in dataclasses.fields(record) if f.name not in NOT_VALUES}
    for mapping in (getattr(record, "extra", {}), getattr(record, "fields", {})):
        found.update({f"extra {key}": value for key, value in mapping.items()})
    return {name: value for name, value in found.items() if value not in (None, ())}


def by_place(data: bytes, shift: int = 0) -> dict[tuple[int, str], dict[str, object]]:
    return {(record.offset + shift, _name(record)): values(record) for record in iter_records([data])}


def _name(record: Record) -> str:
    return record.kind.value if isinstance(record, LogEvent) else type(record).__name__


WHOLE = by_place(LOG)


@given(st.integers(0, len(LOG)))
@settings(max_examples=200, deadline=None)
def test_cut_at_the_end_invents_nothing(end: int) -> None:
    for place, found in by_place(LOG[:end]).items():
        assert found.items() <= WHOLE[place].items()


@given(st.integers(0, len(LOG)), st.integers(0, len(LOG)))
@settings(max_examples=200, deadline=None)
def test_cut_at_both_ends_invents_nothing(start: int, end: int) -> None:
    line_start = LOG.rfind(b"\n", 0, start) + 1
    for (offset, name), found in by_place(LOG[start:end], shift=start).items():
        # A line whose beginning is missing keeps the rest of what it said.
        place = (line_start if offset == start else offset, name)
        assert found.items() <= WHOLE[place].items()


def test_every_cut_of_every_kind_of_line() -> None:
    sample = N16_GRAPH + VLLM + PLAIN_PREFILL.encode() + PLAIN_DECODE.encode()
    whole = by_place(sample)
    for end in range(len(sample)):
        for place, found in by_place(sample[:end]).items():
            assert found.items() <= whole[place].items(), sample[max(0, end - 40) : end]


@given(st.lists(st.integers(0, len(LOG)), max_size=30))
@settings(max_examples=40, deadline=None)
def test_chunks_do_not_matter(cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(LOG)]
    chunks = [LOG[a:b] for a, b in pairwise(borders)]
    assert list(iter_records(chunks)) == list(iter_records([LOG]))


def content(records: list[Record]) -> Counter[str]:
    return Counter(str(dataclasses.replace(record, line=0, offset=0)) for record in records)


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_interleaved_lines_keep_every_record(random: object) -> None:
    left, right = LOG.splitlines(keepends=True), OTHER.splitlines(keepends=True)
    mixed: list[bytes] = []
    while left or right:
        source = left if not right or (left and random.random() < 0.5) else right  # type: ignore[attr-defined]
        mixed.append(source.pop(0))
    apart = list(iter_records([LOG])) + list(iter_records([OTHER]))
    assert content(list(iter_records(mixed))) == content(apart)


def test_concatenation_keeps_every_record() -> None:
    first, second = list(iter_records([LOG])), list(iter_records([OTHER]))
    lines = LOG.count(b"\n")
    moved = [dataclasses.replace(r, line=r.line + lines, offset=r.offset + len(LOG)) for r in second]
    assert list(iter_records([LOG, OTHER])) == first + moved


def test_lost_newlines_lose_at_most_the_last_value() -> None:
    joined = (PLAIN_DECODE.strip() + PLAIN_PREFILL.strip() + PLAIN_DECODE.strip()).encode()
    spaced = (PLAIN_DECODE.strip() + " " + PLAIN_PREFILL.strip() + " " + PLAIN_DECODE).encode()
    apart = [values(r) for line in (PLAIN_DECODE, PLAIN_PREFILL, PLAIN_DECODE) for r in iter_records([line.encode()])]
    assert [values(r) for r in iter_records([spaced])] == apart
    for record, whole in zip(iter_records([joined]), apart, strict=True):
        assert values(record).items() <= whole.items() and len(values(record)) >= len(whole) - 1
