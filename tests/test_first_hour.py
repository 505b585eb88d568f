"""What a newcomer gets wrong in the first hour: each mistake ends with one message that says what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.paths import ROOT_ENV

ROOT = Path(__file__).parents[1]
QUICKSTART = (ROOT / "data" / "campaigns" / "quickstart.yaml").read_text(encoding="utf-8")
CAMPAIGN = QUICKSTART.replace("name: quickstart", "name: mine")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one campaign file, one recorded campaign, and files that people point at by mistake."""
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    (tmp_path / "data" / "campaigns").mkdir(parents=True)
    (tmp_path / "data" / "campaigns" / "quickstart.yaml").write_text(QUICKSTART)
    shutil.copytree(ROOT / "data" / "recorded" / "kimi_k25", tmp_path / "data" / "recorded" / "kimi_k25")
    (tmp_path / "logs" / "node1").mkdir(parents=True)
    (tmp_path / "logs" / "node1" / "server.log").write_text("x\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "access.log").write_text('10.0.0.1 - - [01/Jan/2026:10:00:00] "GET / HTTP/1.1" 200\n')
    (tmp_path / "result.jsonl").write_text('{"a": 1}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code", "what", "step"),
    [
        ("diagnose acess.log", 3, "acess.log: cannot be read (No such file", "did you mean access.log?"),
        ("diagnose nowhere/x.log", 3, "nowhere/x.log: cannot be read", "check the path and its permissions"),
        ("diagnose logs", 3, "logs: cannot be read (Is a directory)", "name the log in it: logs/node1/server.log"),
        ("parse empty", 3, "empty: cannot be read (Is a directory)", "name a file; no log lies in this folder"),
        ("diagnose access.log --draft empty", 3, "empty/config.json: missing", "a model folder needs the config.json"),
        ("diagnose access.log --target empty", 2, "--target is checked against a draft", "name it with --draft DIR"),
        ("report --campaign kimi", 3, "no campaign 'kimi'", "did you mean 'kimi_k25'?"),
        ("report --campaign zzz", 3, "no campaign 'zzz'", "there are: kimi_k25"),
        ("report --notebook campain", 3, "no report notebook 'campain'", "did you mean 'report_campaign'?"),
        ("check zzz", 3, "zzz: neither a campaign nor a draft folder", "campaign files are: quickstart"),
        ("check empty", 3, "empty/config.json: missing", "a model folder needs the config.json"),
        ("run quickstrat", 3, "no campaign file 'quickstrat'", "did you mean 'quickstart'?"),
        ("run zzz", 3, "no campaign file 'zzz'", "there are: quickstart"),
        (
            "run quickstart --set repeat=3 --dry-run",
            3,
            "with repeat=3: unknown setting 'repeat'",
            "did you mean 'repeats'?",
        ),
        ("run quickstart --set zzz=3 --dry-run", 3, "unknown setting 'zzz'", "settings here are: name, title"),
        ("run quickstart --set repeats --dry-run", 3, "'repeats' is no change", "give key=value, such as"),
        ("run quickstart --attach localhost:1", 2, "not the URL of a server", "give http://HOST:PORT"),
        (
            "run quickstart --attach http://127.0.0.1:1",
            6,
            "no healthy server answers there",
            "try curl http://127.0.0.1:1",
        ),
        ("run quickstart --log access.log", 2, "a log without a server to measure", "give --attach URL with --log"),
        ("import result.jsonl --campaign x", 3, "nothing to import in 1 file", "docs/importing.md names the files"),
        ("parse access.log --format parquet", 2, "Parquet is binary", "name a file with --out FILE"),
        ("publish data", 2, "data: lies in the folder of the data", "name a folder elsewhere"),
        ("publish public", 3, "no pages to publish", "build them first, with workbench report"),
    ],
)
def test_a_mistake_ends_with_what_to_do(
    project: Path, command: str, code: int, what: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == code
    said = capsys.readouterr().err
    assert what in said
    assert f"\n  -> {step}" in said
    assert "Traceback" not in said and "Errno" not in said


@pytest.mark.parametrize(
    ("old", "new", "what", "step"),
    [
        ("repeats:", "repeat:", "mine.yaml:23: unknown setting 'repeat'", "did you mean 'repeats'?"),
        ("repeats: 2", "repeats 2", "mine.yaml:24: not YAML: could not find expected", "look at this line and"),
        ("  model_path: smollm2", "\tmodel_path: smollm2", "mine.yaml:9: not YAML", "indent with spaces, not tabs"),
        ("repeats: 2", "repeats: two", "mine.yaml:23: repeats: ", "give a whole number"),
        (
            "sweep:\n  - speculative_num_steps: 3\n",
            "",
            "mine.yaml: sweep: Field required",
            "add it; see data/campaigns/",
        ),
        ("engine: reference", "engine: vllm", "mine.yaml:6: engine: ", "change it; see data/campaigns/"),
        ("name: mine", "name: ../mine", "mine.yaml:2: name: ", "give a name without slashes"),
        ("sweep:", "repeats: 3\nsweep:", "'repeats' is set twice", "keep one of them"),
        (CAMPAIGN, "", "mine.yaml: not a mapping of settings", "see data/campaigns/ for examples"),
    ],
)
def test_a_broken_campaign_file_names_the_line_and_what_to_do(
    project: Path, old: str, new: str, what: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert CAMPAIGN.count(old) == 1
    (project / "data" / "campaigns" / "mine.yaml").write_text(CAMPAIGN.replace(old, new))
    assert main(["check", "mine"]) == 3
    said = capsys.readouterr().err
    assert what in said
    assert f"\n  -> {step}" in said


def test_the_file_of_another_tool_is_no_log_and_the_verdict_says_where_it_goes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "result.jsonl"]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "does not look like the log of an SGLang or vLLM server" in said
    assert "results of a benchmark tool are read by workbench import FILE --campaign NAME" in said


def test_a_root_that_is_not_there_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path / "gone"))
    assert main(["report"]) == 2
    assert "no such folder\n  -> set it to a checkout, or unset it" in capsys.readouterr().err
    assert not (tmp_path / "gone").exists()


def test_a_project_without_campaigns_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    assert main(["report"]) == 0
    assert "workbench run measures one, workbench import brings results" in capsys.readouterr().out
