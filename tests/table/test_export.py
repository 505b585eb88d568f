from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest
from log_samples import N16_GRAPH, PLAIN_DECODE, PLAIN_PREFILL, VLLM_SPEC, decode_line

from workbench.errors import UsageError
from workbench.parse.server_log import iter_stretches
from workbench.table.export import NAMES, Part, decode_parts, num_rows, write_parts


def parts(data: bytes, log: str = "a.log") -> list[Part]:
    return list(decode_parts(log, iter_stretches([data])))


def rows(data: bytes) -> list[dict[str, object]]:
    return [dict(zip(part, row, strict=True)) for part in parts(data) for row in zip(*part.values(), strict=True)]


def written(data: list[Part], how: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert write_parts(data, how, None) == sum(map(num_rows, data))
    return capsys.readouterr().out


def test_a_row_holds_the_line_as_printed() -> None:
    first, _, third = rows(N16_GRAPH)
    assert first == {
        "log": "a.log",
        "line": 1,
        "time": datetime(2026, 2, 23, 17, 53, 14),
        "ranks": "TP0",
        "running_req": 1,
        "queue_req": 0,
        "tokens": 671,
        "token_usage": 0.01,
        "accept_len": 2.15,
        "accept_rate": 0.13,
        "cuda_graph": True,
        "gen_tok_per_s": 66.89,
        "truncated": False,
        "extra": "",
    }
    assert (third["accept_len"], third["accept_rate"], third["gen_tok_per_s"], third["truncated"]) == (
        2.05,
        None,
        None,
        True,
    )


def test_prefill_lines_are_no_rows_and_unknown_keys_are_kept() -> None:
    odd = PLAIN_DECODE.replace("#queue-req: 2", "new key: 7.5, #queue-req: 2").replace(" TP0", " DP1 TP0")
    (row,) = rows((PLAIN_PREFILL + odd).encode())
    assert json.loads(str(row["extra"])) == {"new key": "7.5"}
    assert (row["ranks"], row["line"]) == ("DP1 TP0", 2)


def test_a_vllm_row_takes_speed_and_load_from_the_engine_line() -> None:
    (row,) = rows(VLLM_SPEC)
    assert (row["accept_len"], row["accept_rate"], row["gen_tok_per_s"]) == (2.25, pytest.approx(0.417), 55.5)
    assert (row["running_req"], row["queue_req"], row["token_usage"]) == (2, 1, pytest.approx(0.03))
    assert json.loads(str(row["extra"]))["Per-position acceptance rate"] == "0.7, 0.35, 0.2"


def test_csv_has_a_heading_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(parts(N16_GRAPH, 'odd "name", here.log'), "csv", capsys)
    read = list(csv.DictReader(io.StringIO(text)))
    assert list(read[0]) == list(NAMES)
    assert [row["gen_tok_per_s"] for row in read] == ["66.89", "64.25", ""]
    assert (read[0]["log"], read[0]["time"]) == ('odd "name", here.log', "2026-02-23T17:53:14")


@pytest.mark.parametrize(
    ("log", "cell"),
    [("=cmd|' C'!A0.log", "'=cmd|' C'!A0.log"), ("+1.log", "'+1.log"), ("-1.log", "'-1.log"), ("@a.log", "'@a.log")],
)
def test_csv_cannot_steer_a_spreadsheet(capsys: pytest.CaptureFixture[str], log: str, cell: str) -> None:
    read = list(csv.DictReader(io.StringIO(written(parts(N16_GRAPH, log), "csv", capsys))))
    assert {row["log"] for row in read} == {cell}


def test_csv_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(parts(N16_GRAPH, "esc\x1b[31m\x9b.log"), "csv", capsys)
    assert text.splitlines()[1].startswith("esc\ufffd[31m\ufffd.log,")


def test_json_is_an_object_a_line_with_null_for_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = written(parts(N16_GRAPH), "json", capsys).splitlines()
    read = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [row["gen_tok_per_s"] for row in read] == [66.89, 64.25, None]
    assert list(read[0]) == list(NAMES)
    assert read[0]["cuda_graph"] is True


def test_json_cannot_steer_the_terminal_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    log = "x\x9b31mRED\u202e\x7fé.log"  # C1's CSI, the change of direction
    text = written(parts(N16_GRAPH, log), "json", capsys)
    assert text.startswith('{"log": "x\\u009b31mRED\\u202e\\u007f\\u00e9.log", ')
    assert {json.loads(line)["log"] for line in text.splitlines()} == {log}


def test_the_table_has_columns_under_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    off = decode_line().replace("cuda graph: True", "cuda graph: False")
    name, head, first, *_, last = written(parts(N16_GRAPH + off.encode()), "table", capsys).splitlines()
    assert name == "a.log"
    assert head.split() == [
        *("line", "time", "ranks", "running_req", "queue_req", "tokens"),
        *("accept_len", "accept_rate", "cuda_graph", "gen_tok_per_s"),
    ]
    assert first.split() == ["1", "2026-02-23", "17:53:14", "TP0", "1", "0", "671", "2.15", "0.13", "on", "66.89"]
    assert last.split()[-2:] == ["OFF", "101.50"]
    assert {len(line) for line in (head, first, last)} == {len(head)}


def test_the_table_marks_cut_lines_and_repeats_its_head_for_each_log(capsys: pytest.CaptureFixture[str]) -> None:
    text = written([*parts(N16_GRAPH, "a.log"), *parts(N16_GRAPH, "b.log")], "table", capsys)
    assert text.count("accept_len") == 2
    cut = [line for line in text.splitlines() if line.endswith("cut off")]
    assert len(cut) == 2
    assert cut[0].split()[-4:-2] == ["-", "-"]


def test_the_table_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(parts(N16_GRAPH, "a\x1b[2J\nb.log"), "table", capsys)
    assert text.startswith("a\ufffd[2J b.log\n")


def test_parquet_has_the_declared_types(tmp_path: Path) -> None:
    assert write_parts(parts(N16_GRAPH + VLLM_SPEC), "parquet", tmp_path / "a.parquet") == 4
    table = pd.read_parquet(tmp_path / "a.parquet")
    assert list(table.columns) == list(NAMES)
    assert str(table["time"].dtype) == "datetime64[us]"
    assert table["accept_len"].tolist() == [2.15, 2.12, 2.05, 2.25]
    assert table["running_req"].tolist() == [1, 1, 1, 2]


def test_parquet_of_nothing_has_its_columns_all_the_same(tmp_path: Path) -> None:
    assert write_parts([], "parquet", tmp_path / "a.parquet") == 0
    assert list(pd.read_parquet(tmp_path / "a.parquet").columns) == list(NAMES)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "new" / "a.csv"
    assert write_parts(parts(N16_GRAPH), "csv", out) == 3
    before = out.read_text()

    def failing() -> object:
        yield parts(N16_GRAPH)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_parts(failing(), "csv", out)  # type: ignore[arg-type]
    assert out.read_text() == before
    assert [path.name for path in out.parent.iterdir()] == ["a.csv"]


def test_formats_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name a file with --out FILE"):
        write_parts([], "parquet", None)
    with pytest.raises(UsageError, match="choose table, csv, json or parquet"):
        write_parts([], "xlsx", tmp_path / "a.xlsx")
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "a.csv"):
        with pytest.raises(UsageError, match="cannot be written") as caught:
            write_parts([], "csv", out)
        assert caught.value.where == str(out)
