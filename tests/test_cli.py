from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from log_samples import N5_NO_GRAPH, N16_GRAPH, RECORDED, recorded
from model_folders import CONFIG, draft_tensors, write_folder
from run_folders import write_campaign, write_run

from workbench import __version__, cli, doctor, reports
from workbench.cli import main
from workbench.errors import MissingToolError, NotebookError
from workbench.paths import ROOT_ENV

COMMANDS = ("diagnose", "parse", "import", "report", "check", "lab", "doctor")
SERVERS = RECORDED / "h200_smollm2" / "_servers"
WORKBENCH = [sys.executable, "-m", "workbench"]
# As on most machines: what is buffered when a reader goes is half of what can go wrong.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def command(*arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    call = [*WORKBENCH, *arguments]
    return subprocess.run(call, input=data, capture_output=True, env=BUFFERED, timeout=60, check=False)


def shell(script: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A pipeline in which ``$W`` is the command and ``$1`` the first argument; fails where any part of it fails."""
    call = ["bash", "-o", "pipefail", "-c", f'W="{sys.executable} -m workbench"; {script}', "bash", *arguments]
    return subprocess.run(call, capture_output=True, env=BUFFERED, timeout=60, check=False)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_bytes(N16_GRAPH)
    return str(path)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    return tmp_path


# --- help and usage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--help",), *((name, "--help") for name in COMMANDS)])
def test_every_command_has_help(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert out.startswith(f"usage: workbench {'' if len(arguments) == 1 else arguments[0]}")
    # Every option says what it is for.
    options = [line for line in out.splitlines() if line.startswith("  --")]
    assert all(len(line.split()) > 2 or "\n" + " " * 20 in out.partition(line)[2][:22] for line in options), options


def test_the_help_names_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(f"\n    {name}" in out for name in COMMANDS)
    assert cli.__doc__ is not None
    for code in ("0", "1", "2", "3", "4", "5", "130"):
        assert f"{code} " in out.partition("Exit codes:")[2]
        assert f"{code} " in cli.__doc__.partition("Exit codes:")[2]


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"workbench {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["pars"], "invalid choice: 'pars'"),
        (["diagnose"], "required: LOG"),
        (["parse", "a.log", "--format", "xlsx"], "invalid choice: 'xlsx'"),
        (["report", "--workers", "0"], "argument --workers: 0 is below 1"),
        (["report", "--workers", "two"], "argument --workers: invalid"),
        (["check", "d", "--tp-size", "-1"], "argument --tp-size: -1 is below 1"),
        (["check", "d", "--context-length", "1.5"], "argument --context-length: invalid"),
        (["tune", "quickstart", "--budget-minutes", "nan"], "argument --budget-minutes: nan is no number from 0"),
        (["tune", "quickstart", "--budget-minutes", "-3"], "argument --budget-minutes: -3 is no number from 0"),
        (["tune", "quickstart", "--budget-minutes", "x"], "argument --budget-minutes: invalid"),
        (["tune", "quickstart", "--budget-share", "25"], "argument --budget-share: 25 is no share between 0 and 1"),
        (["tune", "quickstart", "--budget-share", "nan"], "argument --budget-share: nan is no share between 0 and 1"),
        (["parse", "a.log", "--frmat", "csv"], "unrecognized arguments: --frmat"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_how(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in said
    assert said.startswith("usage: workbench")


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, time; start = time.process_time()\n"
        "from workbench.cli import main\n"
        "try: main(['diagnose', '--help'])\n"
        "except SystemExit: pass\n"
        "print(time.process_time() - start, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    seconds, *modules = done.stderr.split()
    assert not {"pandas", "numpy", "pydantic", "matplotlib", "papermill", "nbconvert"} & set(modules)
    # Processor time, so that other work on the machine does not count: 0.02 s; pandas alone would take 0.5 s.
    assert float(seconds) < 0.3


# --- messages and exit codes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["diagnose", "none.log"],
        ["diagnose", "none.log", "--target", "t"],
        ["diagnose", "-", "--baseline", "-"],
        ["diagnose", "{log}", "--draft", "none"],
        ["diagnose", "{log}", "--page", "{log}/page.html"],
        ["parse", "none.log"],
        ["parse", "-", "-"],
        ["parse", "{log}", "--format", "parquet"],
        ["parse", "{log}", "--out", "{log}"],
        ["parse", "{log}", "--out", "{log}/x.csv"],
        ["check", "none"],
        ["report", "--campaign", "none"],
        ["report", "--notebook", "none"],
    ],
)
def test_every_error_says_what_where_and_what_next(
    arguments: list[str], log: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([argument.format(log=log) for argument in arguments])
    said = capsys.readouterr().err
    assert code in (2, 3)
    what, _, then = said.partition("\n  -> ")
    assert what.startswith("workbench: ")
    assert ": " in what.removeprefix("workbench: ")
    assert len(then) > 10
    assert "Traceback" not in said


def test_errors_bring_their_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    errors = {
        NotebookError("a notebook stopped", where="20_report"): (4, "workbench: 20_report: a notebook stopped\n"),
        MissingToolError("no chromium", next_step="install it"): (5, "workbench: no chromium\n  -> install it\n"),
        KeyboardInterrupt(): (130, "workbench: interrupted\n"),
        OSError(28, "No space left on device", "reports/a.html"): (
            3,
            "workbench: reports/a.html: No space left on device\n"
            "  -> check the path, its permissions and the space left\n",
        ),
    }
    for error, expected in errors.items():

        def fail(error: BaseException = error) -> str:
            raise error

        monkeypatch.setattr(doctor, "examine", fail)
        assert (main(["doctor"]), capsys.readouterr().err) == expected


def test_an_error_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def test_messages_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "a\x1b[2J.log"]) == 3
    assert "\x1b" not in capsys.readouterr().err


# --- diagnose ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("server", "code"), [("base", 0), ("eagle-flag", 1), ("sim25-s3", 0)])
def test_diagnose_exits_with_1_when_something_is_wrong_beyond_doubt(
    server: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(SERVERS / server / "server.log.gz")]) == code
    out = capsys.readouterr()
    assert out.out.startswith("VERDICT  ")
    assert out.err == ""


def test_diagnose_of_a_text_without_decode_lines_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    assert main(["diagnose", str(tmp_path / "notes.txt")]) == 3
    assert "this does not look like the log of an SGLang or vLLM server" in " ".join(capsys.readouterr().out.split())


def test_diagnose_with_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["diagnose", str(SERVERS / "eagle-flag" / "server.log.gz"), "--page", str(page)]) == 1
    assert capsys.readouterr().out.endswith(f"\npage: {page}\n")
    assert "Wrong flag: LlamaForCausalLMEagle3" in page.read_text()


def test_diagnose_with_a_page_into_reports(project: Path, log: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", log, "--page"])
    page = Path(capsys.readouterr().out.rpartition("page: ")[2].strip())
    assert page.parent == project / "reports"
    assert page.exists()


def test_diagnose_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(recorded("eagle-flag"))))  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["diagnose", "-"]) == 1
    assert "Wrong flag" in capsys.readouterr().out


# --- parse -------------------------------------------------------------------------------------------------------


def test_parse_writes_rows_to_one_stream_and_remarks_to_the_other(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", log, "--format", "json"]) == 0
    out = capsys.readouterr()
    assert [json.loads(line)["accept_len"] for line in out.out.splitlines()] == [2.15, 2.12, 2.05]
    assert out.err == f"{log}: 3 decode lines of 3 lines, 1 cut off\n"


def test_parse_exits_with_3_when_a_log_cannot_be_read_or_nothing_is_found(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.log").write_text("")
    assert main(["parse", log, str(tmp_path / "none.log")]) == 3
    assert main(["parse", str(tmp_path / "empty.log")]) == 3
    assert main(["parse", log, str(tmp_path / "empty.log")]) == 0


def test_parse_into_a_file_says_nothing_on_standard_output(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parse", log, "--format", "csv", "--out", str(tmp_path / "a.csv")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "a.csv").read_text().count("\n") == 4


def test_parse_reads_packed_standard_input() -> None:
    done = command("parse", "-", "--format", "csv", data=gzip.compress(N16_GRAPH))
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 4)
    assert done.stderr == b"standard input: 3 decode lines of 3 lines, 1 cut off\n"


# --- as a part of a pipeline -------------------------------------------------------------------------------------


# The first fits into a pipe and fails when it is flushed at the end, the second while rows are written.
@pytest.mark.parametrize(("how", "lines"), [("table", 3), ("csv", 10_000)])
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, how: str, lines: int) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(N5_NO_GRAPH.splitlines(keepends=True)[0] * lines)
    done = shell(f'$W parse "$1" --format {how} | head -n 1', str(path))
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1)
    assert b"Traceback" not in done.stderr and b"BrokenPipeError" not in done.stderr


def test_a_reader_that_never_read_is_no_error_either() -> None:
    done = shell("$W doctor | true")
    assert (done.returncode, done.stderr) == (0, b"")
    # An error after the heading of the table: its own exit code, and its own message alone.
    done = shell("$W parse none.log --format csv | true")
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 2)


def test_closed_streams_are_no_tracebacks(log: str) -> None:
    done = shell('$W parse - "$1" >&- <&-', log)
    first, *_, last = done.stderr.decode().splitlines()
    assert (done.returncode, first) == (3, "-: standard input is closed")
    assert last == f"{log}: 3 decode lines of 3 lines, 1 cut off"
    assert shell("$W doctor 2>&-").returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_message() -> None:
    done = shell("$W doctor >/dev/full")
    assert done.returncode == 3
    assert done.stderr.decode().splitlines()[0] == "workbench: No space left on device"


def test_interrupted_is_130_without_a_traceback(tmp_path: Path) -> None:
    waiting = subprocess.Popen(
        [*WORKBENCH, "parse", "-", "--out", str(tmp_path / "a.csv")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert waiting.stdin is not None
    waiting.stdin.write(N16_GRAPH)
    waiting.stdin.flush()
    # It is reading when the file that it writes to is there.
    deadline = time.monotonic() + 30
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=30)
    assert (waiting.returncode, said) == (130, b"workbench: interrupted\n")
    assert list(tmp_path.iterdir()) == []


# --- check, report, doctor ---------------------------------------------------------------------------------------


def test_check_exits_with_1_for_an_error_and_0_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_folder(tmp_path / "good", CONFIG, draft_tensors())
    assert main(["check", str(good)]) == 0
    capsys.readouterr()
    bad = write_folder(tmp_path / "bad", CONFIG, draft_tensors(d2t=None))
    assert main(["check", str(bad)]) == 1
    assert "d2t" in capsys.readouterr().out
    assert main(["check", str(good), "--speculative-algorithm", "EAGLE"]) == 1
    assert "use --speculative-algorithm EAGLE3" in capsys.readouterr().out


CAMPAIGN = """
name: mine
title: Mine
sglang_version: 0.5.14
target: {{name: T, model_path: /models/none}}
drafters: [{{name: d, model_path: {draft}}}]
workload: {{prompt_set: mine, num_prompts: 1, max_new_tokens: 8}}
server: {{mem_fraction_static: 0.8, flags: {{sampling-backend: pytorch}}}}
sweep: [{{speculative_num_steps: 3}}]
"""


@pytest.fixture
def campaign_file(tmp_path: Path, project: Path) -> Path:
    draft = write_folder(tmp_path / "draft", CONFIG, draft_tensors())
    (project / "data" / "prompts").mkdir(parents=True)
    (project / "data" / "prompts" / "mine.jsonl").write_text('{"text": "hi"}\n')
    (project / "data" / "campaigns").mkdir()
    path = project / "data" / "campaigns" / "mine.yaml"
    path.write_text(CAMPAIGN.format(draft=draft))
    return path


def test_check_takes_a_campaign_by_its_file_and_by_its_name(
    campaign_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(campaign_file)]) == 0
    out = capsys.readouterr().out
    assert "not checked: /models/none is not on this machine" in out
    assert "\n  for:   all 3 starts\n" in out
    assert out.splitlines()[-1].startswith("mine: 3 starts, 0 errors, ")
    assert main(["check", "mine"]) == 0
    assert capsys.readouterr().out == out


def test_check_of_a_campaign_exits_with_1_for_an_error(campaign_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mine", "--set", "sweep.0.speculative_algorithm=EAGLE"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("ERROR  --speculative-algorithm EAGLE with the EAGLE-3 draft class")
    assert "for:   eagle-d-s3-k1-n4" in out
    assert main(["check", "mine", "--set", "server.flags.samplin-backend=pytorch"]) == 1
    assert "did you mean sampling-backend?" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["mine", "--tp-size", "2"], 2, "--tp-size: this option goes with a draft folder, and this is a campaign"),
        (["{draft}", "--set", "a=1"], 2, "--set: this option goes with a campaign, and this is a draft folder"),
        (["mien"], 3, "mien: neither a campaign nor a draft folder\n  -> did you mean 'mine'?"),
        (["none.yaml"], 3, "no campaign file 'none.yaml'"),
        (["mine", "--set", "servr.tp_size=2"], 3, "unknown setting 'servr'"),
    ],
)
def test_check_says_what_it_was_given(
    arguments: list[str], code: int, words: str, campaign_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = campaign_file.parents[2] / "draft"
    assert main(["check", *(argument.format(draft=draft) for argument in arguments)]) == code
    assert words in capsys.readouterr().err


def test_a_folder_with_the_name_of_a_campaign_is_a_draft_when_it_holds_one(
    campaign_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(campaign_file.parents[2])
    Path("mine").mkdir()
    assert main(["check", "mine"]) == 0
    assert "mine: 3 starts" in capsys.readouterr().out
    write_folder(Path("mine"), CONFIG, draft_tensors())
    assert main(["check", "mine"]) == 0
    assert "mine: 3 starts" not in capsys.readouterr().out


def test_report_lists_what_there_is_and_what_cannot_be_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--list"]) == 0
    assert capsys.readouterr().out.startswith("no campaign in ")
    write_run(write_campaign(project / "data" / "runs" / "mine") / "base")
    (project / "data" / "runs" / "empty").mkdir()
    assert main(["report", "--list"]) == 0
    empty, _, mine = capsys.readouterr().out.splitlines()
    assert empty.startswith("empty: ")
    assert "so this is no campaign folder" in empty
    assert mine == "mine: 1 run; mine-report_campaign, mine-report_throughput, mine-explore"
    assert main(["report", "--list", "--campaign", "mine"]) == 0
    assert capsys.readouterr().out == "mine: 1 run; mine-report_campaign, mine-report_throughput\n"


@pytest.mark.parametrize(("all_ok", "code"), [(True, 0), (False, 1)])
def test_report_passes_on_what_was_asked_and_exits_by_the_outcome(
    all_ok: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {}

    def build(**arguments: object) -> reports.Outcome:
        asked.update(arguments)
        return reports.Outcome("2 pages. Open:", Path("reports/index.html"), all_ok)

    monkeypatch.setattr(reports, "build", build)
    assert (
        main(["report", "--campaign", "a", "--campaign", "b", "--notebook", "n", "--workers", "3", "--force"]) == code
    )
    assert (asked["campaigns"], asked["notebooks"], asked["workers"], asked["force"]) == (["a", "b"], ["n"], 3, True)
    assert capsys.readouterr().out == "2 pages. Open:\nreports/index.html\n"


def test_doctor_prints_what_the_machine_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == doctor.examine() + "\n"
