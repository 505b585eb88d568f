"""The tools of a checkout: what they refuse, and that they lose nothing by it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.table import load_tables

TOOLS = Path(__file__).parents[1] / "tools"
RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "h200_variants"
RUN = "baseline-default-c1-5818a1"


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A campaign of one run as it lies in data/runs: not packed."""
    folder = tmp_path / "runs" / "one"
    shutil.copytree(RECORDED / RUN, folder / RUN)
    for name in ("campaign.json", "drafters.json"):
        shutil.copy(RECORDED / name, folder)
    shutil.copytree(RECORDED / "_servers" / "baseline-default", folder / "_servers" / "baseline-default")
    for path in folder.rglob("*.gz"):
        subprocess.run(["gunzip", str(path)], check=True)
    status = folder / RUN / "status.json"
    status.write_text(status.read_text().replace(".log.gz", ".log"))
    return folder


def test_a_campaign_is_recorded_with_neutral_paths(measured: Path, tmp_path: Path) -> None:
    done = tool("record_campaign.py", measured, "--source", "a test", "--out", tmp_path / "out", "--hide", "H200=GPU")
    assert (done.returncode, done.stderr) == (0, "")
    tables = load_tables(tmp_path / "out" / "one")
    assert list(tables.runs["origin"]) == ["recorded"] and tables.problems == ()
    assert len(tables.requests) == 60 and list(tables.runs["gpu_name"]) == ["NVIDIA GPU"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hide", "foo"], "'foo' is not TEXT=NEUTRAL"),
        (["--hide", "=Z"], "is not TEXT=NEUTRAL"),
        (["--name", "../../evil"], "is no name of a campaign"),
        (["--source", " "], "is empty"),
    ],
)
def test_what_was_recorded_before_stays_where_recording_fails(
    measured: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    before = tmp_path / "out" / "one"
    before.mkdir(parents=True)
    (before / "precious").touch()
    done = tool("record_campaign.py", measured, "--source", "a test", "--out", tmp_path / "out", *arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["one", "precious"]


def test_a_campaign_that_cannot_be_read_whole_replaces_nothing(measured: Path, tmp_path: Path) -> None:
    before = tmp_path / "out" / "one"
    before.mkdir(parents=True)
    (before / "precious").touch()
    (measured / "_checks").mkdir()
    (measured / "_checks" / "router.json").write_text("{")
    done = tool("record_campaign.py", measured, "--source", "a test", "--out", tmp_path / "out")
    assert done.returncode == 1 and "router.json: is no JSON" in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["one", "precious"]


def test_recorded_data_is_not_recorded_again(tmp_path: Path) -> None:
    done = tool("record_campaign.py", RECORDED, "--source", "a test", "--out", tmp_path)
    assert done.returncode == 2 and "is recorded already" in done.stderr
    done = tool("record_campaign.py", tmp_path / "nowhere", "--source", "a test", "--out", tmp_path)
    assert done.returncode == 2 and "no measured campaign" in done.stderr


def test_a_check_beside_nothing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    done = tool("beside.py", "nosuch", "start", "profile")
    assert done.returncode != 0 and "nosuch" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "data" / "runs").exists()


@pytest.mark.parametrize(("layers", "said"), [("0", "2 or more"), ("4", "no tokenizer.json")])
def test_the_shape_needs_layers_and_a_tokenizer(tmp_path: Path, layers: str, said: str) -> None:
    done = tool("kimi_shape/make.py", tmp_path / "out", "--layers", layers, "--tokenizer", tmp_path)
    assert done.returncode == 2 and said in done.stderr and not (tmp_path / "out").exists()


def test_the_shape_is_written(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text("{}")
    assert tool("kimi_shape/make.py", tmp_path / "out", "--tokenizer", tmp_path).returncode == 0
    target = json.loads((tmp_path / "out" / "target" / "config.json").read_text())
    assert (target["num_hidden_layers"], target["n_routed_experts"]) == (4, 384)
