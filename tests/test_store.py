from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path

import pytest
from run_folders import SPECULATIVE, cut_gzip, json_lines, run_spec, write_campaign, write_run, write_text

from workbench.errors import InputError, RunFolderError
from workbench.spec import Origin, Provenance, Range, ReportedFigures, RunSpec, RunState, RunStatus
from workbench.store import (
    find_campaigns,
    read_campaign,
    read_gpu,
    read_metrics,
    read_requests,
    read_run,
    write_atomic,
    write_json,
)
from workbench.store import write_run as write_run_folder

DEEP = "[" * 100_000


def reported(**ranges: tuple[float, float]) -> dict[str, object]:
    return {"source": "s", **{name: {"low": low, "high": high} for name, (low, high) in ranges.items()}}


def said(folder: Path) -> list[tuple[str, str]]:
    """The problems of a campaign, with paths from its folder."""
    problems = read_campaign(folder).problems
    return [(problem.where.removeprefix(f"{folder}/"), problem.what) for problem in problems]


# --- campaigns ---------------------------------------------------------------------------------------------------


def test_an_absent_folder_and_a_folder_that_is_no_campaign(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such campaign folder") as caught:
        read_campaign(tmp_path / "none")
    assert "report --list" in str(caught.value)
    with pytest.raises(RunFolderError, match=r"campaign.json: does not exist, so this is no campaign folder"):
        read_campaign(tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "the file: Invalid JSON: EOF while parsing a value at line 1 column 0"),
        ('{"name": "c", "title"', "the file: Invalid JSON"),
        (b"\xff\xfe", "the file: Invalid JSON"),
        (DEEP, "the file: Invalid JSON: recursion limit exceeded"),
        ("[]", "the file: Input should be an object"),
        ({"name": "c", "title": "t", "target": 5, "machine": "m"}, "target: Input should be a valid string"),
        ({"name": "c"}, "title: Field required (and 2 more)"),
    ],
)
def test_a_campaign_file_that_cannot_be_used(tmp_path: Path, content: object, fault: str) -> None:
    write_text(tmp_path / "campaign.json", content)
    with pytest.raises(RunFolderError) as caught:
        read_campaign(tmp_path)
    assert caught.value.what.startswith(fault)
    assert caught.value.where == str(tmp_path / "campaign.json")
    assert caught.value.next_step


def test_a_campaign_without_runs_says_so(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    assert read_campaign(folder).runs == ()
    assert said(folder) == [(str(folder), "no run can be read in this campaign")]


def test_the_folder_names_the_campaign_and_its_runs(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_text(folder / "campaign.json", {"name": "old", "title": "t", "target": "T", "machine": "m"})
    write_run(folder / "copy of run", run_id="run")
    read = read_campaign(folder)
    assert read.info.name == "c"
    assert [run.spec.run_id for run in read.runs] == ["copy of run"]
    assert said(folder) == [
        (str(folder), "campaign.json says name 'old'; the folder's name is used"),
        ("copy of run", "spec.json says run_id 'run'; the folder's name is used"),
    ]


def test_runs_come_in_order_of_their_names_whatever_these_are(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    names = ['"quoted" run', "<script>alert(1)<", "a b", "zz"]
    for name in reversed(names):
        write_run(folder / name)
    write_run(folder / "_servers")
    write_run(folder / ".trash")
    assert [run.spec.run_id for run in read_campaign(folder).runs] == names
    assert said(folder) == []


def test_folders_that_cannot_be_listed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    folder = write_campaign(tmp_path / "c")
    monkeypatch.setattr(Path, "iterdir", refuse)
    for read in (lambda: read_campaign(folder), lambda: find_campaigns(tmp_path)):
        with pytest.raises(RunFolderError, match="cannot be listed \\(Permission denied\\)"):
            read()


def test_roots_that_do_not_exist_hold_nothing(tmp_path: Path) -> None:
    write_campaign(tmp_path / "here" / "c")
    assert find_campaigns(tmp_path / "none", tmp_path / "here") == [tmp_path / "here" / "c"]


def test_valid_drafters_are_used_and_others_are_named(tmp_path: Path) -> None:
    drafters = [
        {"name": "good", "training_samples": 10},
        {"name": "half", "training_samples": 0.5},
        {"name": "good", "training_samples": 20},
        {"name": "flag", "seed": True},
        {"name": "huge", "response_tokens": 10**30},
        "text",
        {"name": "walked", "offline": [{"prompt_set": "p", "accept_length_by_steps": {"1": 1.5, "3": 2}}]},
    ]
    folder = write_campaign(tmp_path / "c", drafters=drafters)
    write_run(folder / "r")
    read = read_campaign(folder)
    assert [(drafter.name, drafter.training_samples) for drafter in read.drafters] == [("good", 10), ("walked", None)]
    assert read.drafters[1].offline[0].accept_length_by_steps == {1: 1.5, 3: 2.0}
    assert [where for where, _ in said(folder)] == [f"drafters.json, drafter {k}" for k in (2, 3, 4, 5, 6)]
    assert said(folder)[1][1] == "a second drafter is named 'good'; it is left out"
    assert all(what.endswith("left out") for _, what in said(folder))


@pytest.mark.parametrize("content", ["", "{}", '[{"name": "d"', DEEP, b"\xff"])
def test_a_drafters_file_that_is_no_list_costs_the_drafters_only(tmp_path: Path, content: object) -> None:
    folder = write_campaign(tmp_path / "c")
    write_text(folder / "drafters.json", content)
    write_run(folder / "r")
    read = read_campaign(folder)
    assert (read.drafters, len(read.runs)) == ((), 1)
    assert said(folder) == [("drafters.json", "not a JSON list; it is not used")]


# --- runs --------------------------------------------------------------------------------------------------------


def test_a_run_that_was_written_reads_back_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "c" / "r"
    spec = RunSpec.model_validate(run_spec(folder, **SPECULATIVE))
    provenance = Provenance(origin=Origin.NOTED, source="a test", argv=("a", "b c"), versions={"sglang": "0.5.14"})
    status = RunStatus(status=RunState.FAILED, reason="died", log_spans=((0, 5), (7, 9)))
    reported = ReportedFigures(source="notes", output_tok_per_s=Range(low=50.5, high=60))
    write_run_folder(folder, spec, provenance, status, reported=reported)
    run = read_run(folder)
    assert (run.spec, run.provenance, run.status, run.reported) == (spec, provenance, status, reported)
    assert (run.resolved, run.log) == (None, None)
    assert sorted(path.name for path in folder.iterdir()) == [
        "provenance.json",
        "reported.json",
        "spec.json",
        "status.json",
    ]


def test_a_full_disk_names_the_file_and_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "page.html"
    write_atomic(path, "before")
    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(InputError) as caught:
        write_atomic(path, "after")
    assert str(caught.value) == (
        f"{path}: cannot be written (No space left on device)\n  -> free space or choose another folder"
    )
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_text_with_bytes_of_a_file_name_is_written_with_escapes(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"log": os.fsdecode(b"a\xff.log")})
    assert (tmp_path / "a.json").read_bytes() == b'{\n  "log": "a\\udcff.log"\n}\n'


def test_status_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c" / "r"
    order: list[str] = []
    monkeypatch.setattr("workbench.store.write_json", lambda path, value: order.append(path.name))
    write_run_folder(
        folder,
        RunSpec.model_validate(run_spec(folder)),
        Provenance(origin=Origin.MEASURED, source="s"),
        RunStatus(status=RunState.OK),
        reported=ReportedFigures(source="s"),
    )
    assert order[-1] == "status.json"
    assert len(order) == 4


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("spec.json", "does not exist; this run is left out"),
        ("provenance.json", "does not exist; this run is left out"),
        (
            "status.json",
            "does not exist, which is written last, so the run did not come to its end; this run is left out",
        ),
    ],
)
def test_a_half_written_run_is_left_out_and_the_others_are_read(tmp_path: Path, name: str, fault: str) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "good")
    write_run(folder / "half", files={name: None})
    assert [run.spec.run_id for run in read_campaign(folder).runs] == ["good"]
    assert said(folder) == [(f"half/{name}", fault)]


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("spec.json", '{"campaign": "c", "run_id"', "the file: Invalid JSON"),
        ("spec.json", DEEP, "the file: Invalid JSON: recursion limit exceeded"),
        ("provenance.json", {"origin": "measured", "source": "s", "gpu_count": True}, "gpu_count: Input should be"),
        ("provenance.json", {"origin": "measured", "source": "s", "gpu_count": "8"}, "gpu_count: Input should be"),
        ("status.json", {"status": "done"}, "status: Input should be 'pending', 'running', 'ok',"),
        ("status.json", {}, "status: Field required"),
        ("status.json", "null", "the file: Input should be an object"),
        ("status.json", {"status": "ok", "log_spans": [[9, 3]]}, "the file: Value error, log span 9 to 3 holds"),
        ("provenance.json", {"origin": "guessed", "source": "s"}, "origin: Input should be 'measured', 'recorded',"),
        ("provenance.json", b"\x00\xff", "the file: Invalid JSON"),
    ],
)
def test_a_run_with_an_invalid_file_is_left_out(tmp_path: Path, name: str, content: object, fault: str) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "bad", files={name: content})
    assert read_campaign(folder).runs == ()
    where, what = said(folder)[0]
    assert where == f"bad/{name}"
    assert what.startswith(fault)
    assert what.endswith("this run is left out")


def test_an_empty_run_folder_and_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    (folder / "empty").mkdir()
    write_run(folder / "odd", files={"spec.json": None})
    (folder / "odd" / "spec.json").mkdir()
    assert said(folder)[:2] == [
        ("empty/spec.json", "does not exist; this run is left out"),
        ("odd/spec.json", "is not a file; this run is left out"),
    ]


def test_a_run_that_did_not_succeed_is_read_with_its_reason(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", status={"status": "timed_out", "reason": "600 s"})
    (run,) = read_campaign(folder).runs
    assert (run.status.status, run.status.reason) == (RunState.TIMED_OUT, "600 s")


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("reported.json", {"source": "s", "accept_length": {"low": 3, "high": 2}}, "accept_length: Value error, low"),
        ("reported.json", "", "the file: Invalid JSON"),
        (
            "reported.json",
            reported(output_tok_per_s=(0, 10)),
            "output_tok_per_s: Value error, 0 to 10 tok/s is no speed",
        ),
        ("reported.json", reported(output_tok_per_s=(-5, -5)), "output_tok_per_s: Value error"),
        ("reported.json", reported(decode_tok_per_s=(1e9, 1e9)), "decode_tok_per_s: Value error"),
        ("reported.json", '{"source": "s", "decode_tok_per_s": {"low": 1, "high": 1e999}}', "decode_tok_per_s.high"),
        ("reported.json", reported(accept_length=(0.9, 2)), "accept_length: Value error, 0.9 to 2 is not within 1 to"),
        ("reported.json", reported(accept_length=(2, 1001)), "accept_length: Value error"),
        ("reported.json", reported(accept_rate_printed=(-0.1, 0.5)), "accept_rate_printed: Value error"),
        ("reported.json", reported(accept_rate_printed=(0.5, 2.1)), "accept_rate_printed: Value error"),
        ("reported.json", {"source": "s", "completion_tokens": -1}, "completion_tokens: Input should be greater"),
        ("reported.json", '{"source": "s", "completion_tokens": 1, "source": "t"}', "key 'source' stands twice"),
        ("resolved.json", '{"tp_size": 1, "tp_size": 2}', "key 'tp_size' stands twice"),
        ("resolved.json", "[]", "not a JSON object"),
        ("resolved.json", DEEP, "not a JSON object"),
    ],
)
def test_an_invalid_optional_file_costs_only_itself(tmp_path: Path, name: str, content: object, fault: str) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", files={name: content})
    (run,) = read_campaign(folder).runs
    assert (run.reported, run.resolved) == (None, None)
    where, what = said(folder)[0]
    assert where == f"r/{name}"
    assert what.startswith(fault)
    assert what.endswith("it is not used")
    with pytest.raises(RunFolderError):
        read_run(folder / "r")


def test_resolved_settings_are_read_as_they_are(tmp_path: Path) -> None:
    write_run(tmp_path / "c" / "r", files={"resolved.json": {"tp_size": 8, "nested": {"a": [1]}}})
    assert read_run(tmp_path / "c" / "r").resolved == {"tp_size": 8, "nested": {"a": [1]}}


@pytest.mark.parametrize(("cut", "found"), [(None, {"tp_size": 8}), (-9, None)])
def test_resolved_settings_may_be_packed(tmp_path: Path, cut: int | None, found: object) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r")
    (folder / "r" / "resolved.json.gz").write_bytes(gzip.compress(b'{"tp_size": 8}')[:cut])
    (run,) = read_campaign(folder).runs
    assert run.resolved == found
    assert [where for where, _ in said(folder)] == ([] if found else ["r/resolved.json.gz"])


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r")
    with (folder / "r" / "spec.json").open("r+b") as file:
        file.truncate((64 << 20) + 1)
    assert said(folder)[0] == ("r/spec.json", "larger than 67,108,864 bytes; this run is left out")


# --- the log of a run --------------------------------------------------------------------------------------------


def log_problem(folder: Path, log_file: str) -> str:
    """What is said of a run's log; the run is used all the same."""
    write_run(folder / "r", status={"log_file": log_file})
    (run,) = read_campaign(folder).runs
    assert run.log is None
    ((where, what),) = said(folder)
    assert where == "r/status.json"
    return what


def test_a_log_beside_the_run_or_of_its_server(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    shared = write_text(folder / "_servers" / "s" / "server.log.gz", gzip.compress(b""))
    write_run(folder / "none")
    write_run(folder / "own", log=b"")
    write_run(folder / "packed", files={"server.log.gz": b""})
    write_run(folder / "shared", status={"log_file": "../_servers/s/server.log.gz"})
    logs = [run.log for run in read_campaign(folder).runs]
    assert logs == [None, folder / "own" / "server.log", folder / "packed" / "server.log.gz", shared]


@pytest.mark.parametrize("log_file", ["/etc/hostname", "../../secret.log", "../_servers/../../secret.log"])
def test_a_log_outside_the_campaign_is_not_read(tmp_path: Path, log_file: str) -> None:
    write_text(tmp_path / "secret.log", "x")
    assert "leads out of the campaign folder" in log_problem(write_campaign(tmp_path / "c"), log_file)


@pytest.mark.parametrize("stated", [{}, {"log_file": "server.log"}])
def test_nor_is_one_behind_a_link(tmp_path: Path, stated: dict[str, object]) -> None:
    secret = write_text(tmp_path / "secret.log", "x")
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", status=stated)
    (folder / "r" / "server.log").symlink_to(secret)
    (run,) = read_campaign(folder).runs
    assert run.log is None
    out = "leads out of the campaign folder; it is not used"
    named = ("r/status.json", f"log_file 'server.log' {out}") if stated else ("r/server.log", out)
    assert said(folder) == [named]


def test_a_campaign_that_is_itself_a_link_keeps_its_logs(tmp_path: Path) -> None:
    real = write_campaign(tmp_path / "disk" / "c")
    write_run(real / "r", log=b"")
    (tmp_path / "c").symlink_to(real)
    (run,) = read_campaign(tmp_path / "c").runs
    assert run.log == real / "r" / "server.log"


def test_logs_that_cannot_be_followed(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    assert log_problem(folder, "gone.log") == "log_file 'gone.log' does not exist; it is not used"
    assert "log_file" in log_problem(folder, "a\x00b")
    assert "log_file" in log_problem(folder, "x" * 5000)
    (folder / "r" / "loop").symlink_to("loop")
    assert "log_file" in log_problem(folder, "loop")


def test_a_log_that_is_a_pipe_a_folder_or_leads_nowhere_is_named(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    for name in ("folder", "link", "pipe"):
        write_run(folder / name)
    (folder / "folder" / "server.log").mkdir()
    (folder / "link" / "server.log").symlink_to("gone")
    os.mkfifo(folder / "pipe" / "server.log")
    assert said(folder) == [
        ("folder/server.log", "is not a file; it is not used"),
        ("link/server.log", "does not exist; it is not used"),
        ("pipe/server.log", "is not a file; it is not used"),
    ]


# --- requests ----------------------------------------------------------------------------------------------------


def requests_of(
    folder: Path, content: object, name: str = "requests.jsonl"
) -> tuple[list[dict[str, object]], list[str]]:
    write_run(folder / "c" / "r", files={name: content})
    records, problems = read_requests(read_run(folder / "c" / "r"))
    assert {problem.where for problem in problems} <= {str(folder / "c" / "r" / name)}
    return records, [problem.what for problem in problems]


def test_requests_that_are_no_file_of_the_campaign_are_refused_as_a_log_is(tmp_path: Path) -> None:
    secret = write_text(tmp_path / "secret.jsonl", "{}")
    folder = write_campaign(tmp_path / "c")
    for name in ("folder", "link", "pipe", "within"):
        write_run(folder / name)
    (folder / "folder" / "requests.jsonl").mkdir()
    (folder / "link" / "requests.jsonl").symlink_to(secret)
    os.mkfifo(folder / "pipe" / "requests.jsonl.gz")
    for name, file, what in (
        ("folder", "requests.jsonl", "is not a file"),
        ("link", "requests.jsonl", "leads out of the campaign folder"),
        ("pipe", "requests.jsonl.gz", "is not a file"),
    ):
        with pytest.raises(RunFolderError) as caught:
            read_requests(read_run(folder / name))
        assert (caught.value.where, caught.value.what) == (str(folder / name / file), what)
    write_text(folder / "shared.jsonl", '{"latency_s": 1}')
    (folder / "within" / "requests.jsonl").symlink_to(folder / "shared.jsonl")
    assert read_requests(read_run(folder / "within")) == ([{"latency_s": 1}], [])


@pytest.mark.parametrize("name", ["resolved.json", "reported.json", "windows.json"])
def test_optional_files_behind_a_link_out_of_the_campaign_are_not_read(tmp_path: Path, name: str) -> None:
    secret = write_text(tmp_path / "secret.json", {"source": "elsewhere"})
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r")
    (folder / "r" / name).symlink_to(secret)
    (run,) = read_campaign(folder).runs
    assert (run.resolved, run.reported, run.windows) == (None, None, ())
    assert said(folder) == [(f"r/{name}", "leads out of the campaign folder; it is not used")]


@pytest.mark.parametrize("name", ["spec.json", "status.json", "provenance.json"])
def test_a_run_whose_own_files_lead_out_of_the_campaign_is_left_out(tmp_path: Path, name: str) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r")
    (folder / "r" / name).rename(tmp_path / name)
    (folder / "r" / name).symlink_to(tmp_path / name)
    assert read_campaign(folder).runs == ()
    assert (f"r/{name}", "leads out of the campaign folder; this run is left out") in said(folder)


def test_metrics_behind_a_link_out_of_the_campaign_are_not_read(tmp_path: Path) -> None:
    secret = write_text(tmp_path / "secret.prom", "x 1")
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", files={"metrics.before.prom": "x 0"})
    (folder / "r" / "metrics.after.prom").symlink_to(secret)
    with pytest.raises(RunFolderError, match="leads out of the campaign folder"):
        read_metrics(read_run(folder / "r"))


def test_small_files_may_be_links_within_the_campaign(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c")
    write_text(folder / "shared.json", {"device": "cpu"})
    write_run(folder / "r")
    (folder / "r" / "resolved.json").symlink_to("../shared.json")
    (run,) = read_campaign(folder).runs
    assert run.resolved == {"device": "cpu"}


def test_gpu_samples_are_read_line_by_line(tmp_path: Path) -> None:
    write_run(tmp_path / "c" / "r", files={"gpu.jsonl": '{"t_s": 0, "gpu": 0}\n{"t_s": 0.5, "g'})
    run = read_run(tmp_path / "c" / "r")
    records, problems = read_gpu(run)
    assert records == [{"t_s": 0, "gpu": 0}]
    assert [problem.where for problem in problems] == [str(run.path / "gpu.jsonl")]
    write_run(tmp_path / "c" / "none")
    assert read_gpu(read_run(tmp_path / "c" / "none")) == ([], [])


def test_requests_plain_and_packed(tmp_path: Path) -> None:
    text = json_lines([{"prompt_index": 0}, {"prompt_index": 1}])
    expected = [{"prompt_index": 0}, {"prompt_index": 1}], []
    assert requests_of(tmp_path / "a", text) == expected
    assert requests_of(tmp_path / "b", gzip.compress(text.encode()), "requests.jsonl.gz") == expected
    assert requests_of(tmp_path / "c", text.replace("\n", "\r\n\r\n")) == expected
    assert requests_of(tmp_path / "d", None) == ([], [])


@pytest.mark.parametrize("name", ["requests.jsonl", "gpu.jsonl", "resolved.json", "metrics.before.prom"])
def test_of_plain_and_packed_nobody_knows_which_is_the_run_s(tmp_path: Path, name: str) -> None:
    folder = write_campaign(tmp_path / "c")
    write_run(folder / "r", files={name: "{}"})
    (folder / "r" / f"{name}.gz").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(RunFolderError, match=rf"stands beside {name}\.gz"):
        run = read_run(folder / "r")
        read_metrics(run) if name.startswith("metrics") else (read_requests(run), read_gpu(run))


@pytest.mark.parametrize(
    "text",
    [
        '[{"repeat": 0, "wall_s": -5}]',
        '[{"repeat": 0, "wall_s": 5, "failed": -3}]',
        '[{"repeat": 0, "wall_s": 5, "decode_tok_per_s": "1e300"}]',
        '[{"repeat": 0, "wall_s": 5, "decode_tok_per_s": 1e300}]',
        '[{"repeat": 0, "wall_s": 1e308}]',
        '[{"repeat": 0, "wall_s": 5, "client_cpu_share": -1}]',
        f'[{{"repeat": 0, "wall_s": 5, "completion_tokens": 1{"0" * 400}}}]',
        '[{"repeat": 0, "wall_s": 5, "wall_s": 6}]',
    ],
)
def test_passes_that_cannot_be_are_refused(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "c" / "r", files={"windows.json": text})
    with pytest.raises(RunFolderError):
        read_run(tmp_path / "c" / "r")


def test_a_status_that_is_stated_twice_is_none(tmp_path: Path) -> None:
    write_run(tmp_path / "c" / "r", files={"status.json": '{"status": "failed", "status": "ok"}'})
    with pytest.raises(RunFolderError, match="key 'status' stands twice"):
        read_run(tmp_path / "c" / "r")


def test_drafters_with_a_key_that_stands_twice_are_not_used(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path / "c", drafters='[{"name": "d", "training_samples": 1, "training_samples": 2}]')
    write_run(folder / "r")
    assert said(folder) == [("drafters.json", "key 'training_samples' stands twice; it is not used")]


def test_lines_that_are_no_objects_are_counted_and_the_others_are_used(tmp_path: Path) -> None:
    lines = ['{"a": 1}', "", "[1]", '"text"', "null", "12", "{'a': 1}", DEEP, "9" * 5000, '{"a": 2}', '{"a": 3']
    records, problems = requests_of(tmp_path, "\n".join(lines))
    assert records == [{"a": 1}, {"a": 2}]
    assert problems == ["not a JSON object of at most 1,048,576 bytes: 8 lines (3, 4, 5 ...) left out"]


def test_a_line_ends_at_a_newline_only(tmp_path: Path) -> None:
    text = json.dumps({"error": "line\u2028separator\x85next\x1c"}, ensure_ascii=False)
    assert requests_of(tmp_path, f"{text}\n")[0] == [{"error": "line\u2028separator\x85next\x1c"}]


def test_bytes_that_are_no_text_are_replaced_and_said(tmp_path: Path) -> None:
    records, problems = requests_of(tmp_path, b'{"a": 1}\n{"error": "caf\xe9"}\n')
    assert records == [{"a": 1}, {"error": "caf\ufffd"}]
    assert problems == ["not UTF-8: characters replaced in line 2"]


def test_a_cut_gzip_keeps_the_requests_before_the_cut(tmp_path: Path) -> None:
    text = json_lines([{"prompt_index": k, "text_hash": f"{k * 7919 % 10007:x}"} for k in range(5000)])
    records, problems = requests_of(tmp_path, cut_gzip(text.encode()), "requests.jsonl.gz")
    assert 100 < len(records) < 5000
    assert [record["prompt_index"] for record in records] == list(range(len(records)))
    assert problems[0].startswith("the gzip file is cut off: only the first ")
    assert problems[1:] == [
        f"not a JSON object of at most 1,048,576 bytes: line {len(records) + 1} left out",
    ]


def test_one_endless_line_is_not_kept_in_memory(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n{"b": "' + b"x" * (32 << 20) + b'"}\n{"c": 3}\n')
    records, problems = requests_of(tmp_path, packed, "requests.jsonl.gz")
    assert records == [{"a": 1}, {"c": 3}]
    assert problems == ["not a JSON object of at most 1,048,576 bytes: line 2 left out"]


# --- metrics -----------------------------------------------------------------------------------------------------


def test_metrics_come_in_pairs(tmp_path: Path) -> None:
    write_run(tmp_path / "none")
    write_run(tmp_path / "both", files={"metrics.before.prom": "a 1\n", "metrics.after.prom": b"a \xff\n"})
    write_run(tmp_path / "half", files={"metrics.before.prom": "a 1\n"})
    assert read_metrics(read_run(tmp_path / "none")) is None
    assert read_metrics(read_run(tmp_path / "both")) == ("a 1\n", "a \ufffd\n")
    with pytest.raises(RunFolderError, match=r"metrics.after.prom: does not exist"):
        read_metrics(read_run(tmp_path / "half"))


def test_json_is_written_without_what_is_unknown_and_with_every_letter(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", Provenance(origin=Origin.MEASURED, source="Zürich"))
    assert json.loads((tmp_path / "a.json").read_bytes()) == {
        "origin": "measured",
        "source": "Zürich",
        "versions": {},
        "argv": [],
    }
    assert "Zürich".encode() in (tmp_path / "a.json").read_bytes()
