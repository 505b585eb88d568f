from __future__ import annotations

import csv
import gzip
import io
import os
from pathlib import Path

import pytest
from log_samples import N5_NO_GRAPH, N16_GRAPH, VLLM_SPEC
from run_folders import cut_gzip

from workbench.errors import LogError, UsageError
from workbench.parse.records import ParseCounts
from workbench.table.parse_logs import describe_counts, parse_logs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(N16_GRAPH)
    return path


def parsed(capsys: pytest.CaptureFixture[str], *logs: Path | str) -> tuple[list[str], list[str], int]:
    """The logs of the rows in order, what was said of each log, and the exit code."""
    report = parse_logs([str(path) for path in logs], how="csv", out=None)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert report.rows == len(rows)
    return [row["log"] for row in rows], report.lines, report.exit_code


def test_several_logs_make_one_table(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "b.log.gz"
    packed.write_bytes(gzip.compress(N5_NO_GRAPH * 2))
    logs, said, code = parsed(capsys, log, packed)
    assert logs == [str(log)] * 3 + [str(packed)] * 6
    assert said == [
        f"{log}: 3 decode lines of 3 lines, 1 cut off",
        f"{packed}: 6 decode lines of 6 lines, 2 cut off",
    ]
    assert code == 0


def test_a_log_that_cannot_be_read_is_named_and_the_others_come_out(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, said, code = parsed(capsys, tmp_path / "none.log", log)
    assert logs == [str(log)] * 3
    assert said[0].startswith(f"{tmp_path / 'none.log'}: cannot be read (No such file or directory)\n  -> ")
    assert said[1].startswith(f"{log}: 3 decode lines")
    assert code == 3


def test_none_that_can_be_read_is_an_error_that_names_all_and_keeps_the_result(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("earlier")
    with pytest.raises(LogError) as caught:
        parse_logs([str(tmp_path / "x.log"), str(tmp_path / "y.log")], how="csv", out=out)
    assert "x.log: cannot be read" in str(caught.value)
    assert "y.log: cannot be read" in str(caught.value)
    assert out.read_text() == "earlier"


def test_a_cut_gzip_gives_its_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.gz"
    lines = [N16_GRAPH.splitlines(keepends=True)[0].replace(b"671", b"%d" % (n * 7919 % 10007)) for n in range(3000)]
    path.write_bytes(cut_gzip(b"".join(lines)))
    logs, said, code = parsed(capsys, path)
    assert 100 < len(logs) < 3000
    assert said[0].startswith(f"{path}: the gzip file is cut off: only the first ")
    assert code == 0


def test_a_log_without_decode_lines_says_where_to_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"nothing to see\n")
    _, said, code = parsed(capsys, path)
    assert "no decode line: `workbench diagnose` says what kind of log it looks like" in said[0]
    assert code == 3


def test_vllm_lines_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vllm.log"
    path.write_bytes(VLLM_SPEC)
    assert parsed(capsys, path) == ([str(path)], [f"{path}: 1 decode lines of 2 lines"], 0)


def test_the_result_may_not_replace_a_log(tmp_path: Path, log: Path) -> None:
    link = tmp_path / "link.log"
    link.symlink_to(log)
    for out in (log, link):
        with pytest.raises(UsageError, match="would replace the log"):
            parse_logs([str(log)], how="csv", out=out)
    assert log.read_bytes() == N16_GRAPH


def test_standard_input_is_read_once() -> None:
    with pytest.raises(UsageError, match="only once"):
        parse_logs(["-", "a.log", "-"], how="csv", out=None)


@pytest.mark.parametrize("how", ["csv", "json", "table", "parquet"])
def test_a_file_name_may_be_any_bytes(tmp_path: Path, how: str) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.log")
    Path(path).write_bytes(N16_GRAPH)
    out = tmp_path / "out"
    report = parse_logs([path], how=how, out=out)
    assert report.lines == [f"{tmp_path}/caf\ufffd.log: 3 decode lines of 3 lines, 1 cut off"]
    written = b"caf\\ufffd.log" if how == "json" else "caf\ufffd.log".encode()  # JSON holds escapes, for terminals
    assert written in out.read_bytes()


def test_what_was_not_understood_is_counted() -> None:
    counts = ParseCounts(
        lines=12345, decode=2000, truncated=1, unparsed_batch_lines=2, overlong_lines=3, undecodable_bytes=4
    )
    assert describe_counts(counts, 2000) == (
        "2,000 decode lines of 12,345 lines, 1 cut off, 2 batch lines not understood, 3 lines too long, "
        "4 undecodable bytes"
    )
