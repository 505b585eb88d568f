from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import write_campaign

from workbench.campaigns import campaign_folder, campaign_folders, campaigns_named
from workbench.errors import SpecError
from workbench.paths import ROOT_ENV


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    return tmp_path / "data"


def test_recorded_campaigns_come_first_and_a_second_of_one_name_is_told_apart(data: Path) -> None:
    for path in ("recorded/b", "recorded/a", "runs/c", "runs/a"):
        write_campaign(data / path)
    assert {name: str(folder.relative_to(data)) for name, folder in campaign_folders().items()} == {
        "a": "recorded/a",
        "b": "recorded/b",
        "runs/a": "runs/a",
        "c": "runs/c",
    }
    assert list(campaign_folders()) == ["a", "b", "runs/a", "c"]
    assert campaign_folder("runs/a") == data / "runs" / "a"
    assert campaign_folder("a") == data / "recorded" / "a"
    assert campaigns_named("a") == [data / "recorded" / "a", data / "runs" / "a"]
    assert campaigns_named("b") == [data / "recorded" / "b"]
    assert campaigns_named("runs/a") == [data / "runs" / "a"]


def test_what_is_hidden_or_no_folder_is_no_campaign(data: Path) -> None:
    for name in (".git", "_servers", "real one"):
        write_campaign(data / "runs" / name)
    (data / "runs" / "notes.txt").write_text("x")
    (data / "runs" / "gone").symlink_to(data / "nowhere")
    assert list(campaign_folders()) == ["real one"]


def test_a_name_that_does_not_exist_brings_the_nearest(data: Path) -> None:
    write_campaign(data / "recorded" / "kimi_k25")
    write_campaign(data / "recorded" / "h200_smollm2")
    with pytest.raises(SpecError, match="did you mean 'kimi_k25'") as caught:
        campaign_folder("kimi-k25")
    assert caught.value.where == f"{data / 'recorded'} and {data / 'runs'}"
    with pytest.raises(SpecError, match="there are: h200_smollm2, kimi_k25"):
        campaign_folder("zzz")


def test_without_any_campaign_the_message_says_so(data: Path) -> None:
    assert campaign_folders() == {}
    with pytest.raises(SpecError, match="there are: none"):
        campaign_folder("a")
