"""What a decode line owes to the lines before it, told of thousands at once as of one after the other."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import PLAIN_DECODE, PLAIN_PREFILL

from workbench.parse.records import DecodeRecord, EventKind, LogEvent, PrefillRecord
from workbench.parse.server_log import iter_records
from workbench.table.logs import LogSummary, summarise_log
from workbench.table.phases import dp_rank

ROOT = Path(__file__).parent.parent.parent
LOGS = sorted((ROOT / "data" / "recorded").rglob("*.log.gz"))
STAMP = "[2026-01-05 10:00:00]"
READY = f"{STAMP} The server is fired up and ready to roll!\n"
FLUSH = f"{STAMP} Cache flushed successfully!\n"
ARGS = f"{STAMP} server_args=ServerArgs(model_path='m')\n"

Told = tuple[int, int | None, int | None, bool, bool, int]


def line_by_line(data: bytes) -> Iterator[Told]:
    """Line, load, load before, opening, fresh, prefills of each decode line, by a walk over the records."""
    running: dict[int, int | None] = {}
    opening: dict[int, bool] = {}
    fresh: dict[int, bool] = {}
    prefills: dict[int, Counter[frozenset[str]]] = {}
    told: Counter[tuple[int, frozenset[str]]] = Counter()
    begun = False
    for record in iter_records(data.splitlines(keepends=True)):
        if isinstance(record, LogEvent) and record.kind is EventKind.SERVER_ARGS:
            running, prefills, told = {}, {}, Counter()
        elif isinstance(record, LogEvent) and record.kind in (EventKind.READY, EventKind.FLUSH):
            opening, fresh, begun = {}, {}, True
        elif isinstance(record, PrefillRecord):
            rank = dp_rank(record.ranks)
            if record.new_seq is not None:
                prefills.setdefault(rank, Counter())[record.ranks] += 1
            if record.running_req == 0:
                opening[rank] = True
        elif isinstance(record, DecodeRecord):
            rank = dp_rank(record.ranks)
            seen = prefills.get(rank, Counter())
            total = seen[record.ranks] if record.ranks in seen else max(seen.values(), default=0)
            since, told[rank, record.ranks] = total - told[rank, record.ranks], total
            first, new = opening.get(rank, begun), fresh.get(rank, begun)
            yield record.line, record.running_req, running.get(rank, 0), first, new, since
            opening[rank] = fresh[rank] = False
            running[rank] = record.running_req


def in_the_table(windows: pd.DataFrame) -> list[Told]:
    names = ["line", "running_req", "before_req", "opening", "fresh", "prefills"]
    rows = windows[names].astype(object).where(windows[names].notna(), None)
    return [tuple(row) for row in rows.itertuples(index=False)]


def summary_of(*chunks: bytes) -> LogSummary:
    return summarise_log(chunks, name="a.log")


def assert_same(left: LogSummary, right: LogSummary) -> None:
    pd.testing.assert_frame_equal(left.windows, right.windows, check_exact=True)
    assert (left.facts, left.events, left.counts) == (right.facts, right.events, right.counts)
    assert (left.kind, left.num_impossible) == (right.kind, right.num_impossible)


@pytest.mark.parametrize("path", LOGS[::9], ids=lambda path: f"{path.parent.parent.parent.name}-{path.parent.name}")
def test_a_log_in_one_piece_and_line_by_line(path: Path) -> None:
    data = gzip.decompress(path.read_bytes())
    assert_same(summary_of(data), summary_of(*data.splitlines(keepends=True)))


def decode(tags: str, running: str, accept_len: str) -> str:
    key = f"#running-req: {running}, " if running else ""
    line = PLAIN_DECODE.replace("#running-req: 7, ", key).replace(" TP0]", f" {tags}]")
    return line.replace("cuda graph", f"accept len: {accept_len}, accept rate: 0.50, cuda graph")


def prefill(tags: str, running: int, seq: str) -> str:
    line = PLAIN_PREFILL.replace("#running-req: 5", f"#running-req: {running}").replace("#new-seq: 2, ", seq)
    return line.replace(" TP0]", f" {tags}]")


TAGS = st.sampled_from(["DP0 TP0", "DP0 TP1", "DP1 TP0", "DP12 TP3"])
LINES = st.one_of(
    st.builds(decode, TAGS, st.sampled_from(["1", "2", ""]), st.sampled_from(["2.00", "0.10", "1.50"])),
    st.builds(prefill, TAGS, st.integers(0, 1), st.sampled_from(["#new-seq: 2, ", ""])),
)
RUNS = st.one_of(
    st.builds(lambda lines, times: "".join(lines) * times, st.lists(LINES, min_size=1, max_size=8), st.integers(1, 12)),
    st.sampled_from([READY, FLUSH, ARGS, "noise\n"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(RUNS, min_size=1, max_size=6))
def test_any_order(runs: list[str]) -> None:
    data = "".join(runs).encode()
    whole = summary_of(data)
    assert_same(whole, summary_of(*data.splitlines(keepends=True)))
    expected = list(line_by_line(data))
    if not any(isinstance(record, PrefillRecord) for record in iter_records([data])):
        expected = [(*told[:-1], None) for told in expected]  # type: ignore[misc]
    # Of ranks that repeat each other the table has one.
    kept = set(whole.windows["line"])
    assert in_the_table(whole.windows) == [told for told in expected if told[0] in kept]


def test_ranks_that_repeat_each_other_tell_the_prefills_of_their_own() -> None:
    lines = [PLAIN_PREFILL, PLAIN_PREFILL.replace("TP0", "TP1"), PLAIN_DECODE, PLAIN_DECODE.replace("TP0", "TP1")]
    assert summary_of(("".join(lines) * 20).encode()).windows["prefills"].tolist() == [1] * 20


def test_a_rank_counts_its_own_prefills_where_it_tells_any() -> None:
    first, second, third = (PLAIN_PREFILL.replace("TP0", tag) for tag in ("TP0", "TP1", "TP2"))
    decode = PLAIN_DECODE.replace("TP0", "TP1") * 4
    assert summary_of((first * 3 + second + decode).encode()).windows["prefills"].tolist() == [1, 0, 0, 0]
    assert summary_of((first * 3 + third * 2 + decode).encode()).windows["prefills"].tolist() == [3, 0, 0, 0]


def test_two_tags_of_one_sort_give_the_same_rank_every_time() -> None:
    assert dp_rank(frozenset({"DP3", "DP1", "TP0"})) == 1
