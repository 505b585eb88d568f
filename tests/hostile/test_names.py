"""Names from outside, wherever they become a path, a command line, a page or text on a terminal."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_folders import SPECULATIVE, write_campaign, write_run
from words import MARKUP, NAMES

from workbench.campaigns import campaign_folder
from workbench.errors import InputError, SpecError, UsageError, WorkbenchError
from workbench.launch.argv import server_argv
from workbench.paths import ROOT_ENV, slug
from workbench.prompts import prompt_set, run_name
from workbench.reports import outline, plan
from workbench.store import read_campaign
from workbench.sweep import expand, find_campaign, parse_campaign
from workbench.table import load_tables
from workbench.terminal import printable

every_name = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
FILE_NAME = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "a" / "project"
    for folder in ("notebooks", "data/campaigns", "data/runs", "data/prompts", "reports"):
        (root / folder).mkdir(parents=True)
    monkeypatch.setenv(ROOT_ENV, str(root))
    (root / "data" / "prompts" / "few.jsonl").write_text('{"text": "hello"}\n')
    return root


def campaign(**changes: Any) -> str:
    content: dict[str, Any] = {
        "name": "small",
        "title": "t",
        "target": {"name": "T", "model_path": "/models/t"},
        "drafters": [{"name": "d", "model_path": "/models/d"}],
        "workload": {"prompt_set": "few", "num_prompts": 1, "max_new_tokens": 8},
        "sweep": [{"speculative_num_steps": 3}],
        **changes,
    }
    return json.dumps(content)


# --- paths -------------------------------------------------------------------------------------------------------


@every_name
def test_a_file_name_made_of_a_name_is_one(name: str) -> None:
    made = slug(name)
    assert set(made) <= FILE_NAME and 0 < len(made) <= 80
    assert not made.startswith((".", "-")) and made not in (".", "..")


@every_name
def test_a_campaign_of_that_name_is_refused_or_lies_where_campaigns_lie(root: Path, name: str) -> None:
    runs = root / "data" / "runs"
    try:
        read = parse_campaign(campaign(name=name), name="c")
    except SpecError:
        return
    folder = runs / read.name
    assert folder.parent == runs and folder.resolve().parent == runs.resolve()
    assert not read.name.startswith(("_", "."))


@every_name
def test_runs_servers_and_commands_of_a_drafter_of_that_name(root: Path, name: str) -> None:
    """Its name is no part of a command; what is made of it for folders is a file name."""
    drafters = [{"name": name, "model_path": f"/models/{name}"}]
    try:
        read = parse_campaign(campaign(drafters=drafters), name="c")
    except SpecError:
        return
    for start in expand(read).starts:
        assert set(start.server_id) <= FILE_NAME
        assert all(set(run.run_id) <= FILE_NAME and len(run.run_id) < 200 for run in start.runs)
        argv = server_argv(start, read, port=1)
        paths = [argument for argument in argv if name in argument and len(name) > 2]
        assert paths in ([], [f"/models/{name}"])


@every_name
def test_a_shell_behind_ssh_gets_each_argument_as_it_is(root: Path, name: str) -> None:
    prefix = {
        "launch_prefix": ["ssh", "-tt", "host"],
        "server": {"env": {"NOTE": name}, "flags": {"served_model_name": name}},
    }
    try:
        read = parse_campaign(campaign(**prefix), name="c")
    except SpecError:
        return
    argv = server_argv(expand(read).starts[0], read, port=1)
    heard = shlex.split(" ".join(argv[3:]))
    assert f"NOTE={name}" in heard and name in heard


@every_name
def test_a_prompt_set_of_that_name_is_refused_or_a_file_that_is_there(root: Path, name: str) -> None:
    for ending in ("", ".jsonl"):
        with pytest.raises((InputError, UsageError)):
            prompt_set(f"{name}{ending}")
        try:
            called = run_name(f"{name}{ending}")
        except InputError:
            continue
        assert "/" not in called
    assert not list(root.parent.rglob("escaped*"))


@every_name
def test_campaigns_that_are_asked_for_by_that_name_are_not_there(root: Path, name: str) -> None:
    for find in (find_campaign, campaign_folder):
        with pytest.raises(WorkbenchError) as caught:
            find(name)
        printable(str(caught.value)).encode("utf-8", "backslashreplace")


def test_a_set_value_leads_out_of_nothing(root: Path) -> None:
    (root / "data" / "campaigns" / "small.yaml").write_text(campaign())
    for setting in (
        "name=../../escaped",
        "name=a\x00b",
        "__class__.x=1",
        "sweep.-1.x=2",
    ):
        try:
            expand(find_campaign("small", [setting]))
        except WorkbenchError:
            continue
        raise AssertionError(setting)


# --- campaigns that came from elsewhere --------------------------------------------------------------------------


@every_name
def test_a_run_that_calls_itself_so_is_called_like_its_folder(root: Path, name: str) -> None:
    folder = write_campaign(root / "data" / "runs" / "c", drafters=[{"name": name}])
    write_run(folder / "base", run_id=name)
    write_run(folder / "spec", **{**SPECULATIVE, "drafter": name})
    tables = load_tables(folder)
    assert set(tables.runs["run_id"]) <= {"base", "spec"}
    for job in plan([outline(read_campaign(folder))]):
        assert set(job.page) <= FILE_NAME


@every_name
def test_a_log_of_that_name_is_not_followed(root: Path, name: str) -> None:
    (root.parent / "escaped").write_text("Decode batch")
    folder = write_campaign(root / "data" / "runs" / "c")
    write_run(folder / "base", status={"log_file": name})
    tables = load_tables(folder)
    assert not tables.logs
    assert tables.problems


# --- terminals ---------------------------------------------------------------------------------------------------


@every_name
def test_a_terminal_is_not_steered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.terminal import Lines, complain

    complain(name.encode("utf-8", "backslashreplace").decode())
    Lines().say(name.encode("utf-8", "backslashreplace").decode())
    said = capsys.readouterr().err
    assert all(char.isprintable() or char == "\n" for char in said)


def test_what_a_command_says_about_a_hostile_campaign(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.cli import main

    bad = campaign(title=f"\x1b[2J{MARKUP}\u202e", drafters=[{"name": "\x1b]0;owned\x07", "model_path": "/m"}])
    (root / "data" / "campaigns" / "small.yaml").write_text(yaml.safe_dump(json.loads(bad)))
    for command in (["run", "small", "--dry-run"], ["check", "small"], ["report", "--list"], ["run", "\x1b[2J"]):
        main(command)
        out, err = capsys.readouterr()
        assert all(char.isprintable() or char == "\n" for char in out + err), command
