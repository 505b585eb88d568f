from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import write_text

from workbench.errors import RunFolderError, SpecError
from workbench.explore import list_campaigns, open_campaign


def test_campaigns_are_listed_and_opened_by_name(project: Path) -> None:
    found = list_campaigns()
    assert list(found) == found._ipython_key_completions_() == ["a", "b"]
    assert found.df["runs"].tolist() == [4, 1]
    assert found["b"].name == open_campaign("b").name == "b"
    assert open_campaign(project / "data" / "recorded" / "b").name == "b"
    assert "Campaign a" in repr(found) and "Campaign a" in found._repr_html_()
    assert "a" in found and "c" not in found


def test_a_campaign_that_cannot_be_read_is_listed_as_such(project: Path) -> None:
    write_text(project / "data" / "recorded" / "b" / "campaign.json", "{")
    row = list_campaigns().df.set_index("campaign").loc["b"]
    assert row["title"].startswith("cannot be read: ")
    with pytest.raises(RunFolderError):
        open_campaign("b")


def test_without_campaigns_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    assert "workbench run quickstart" in repr(list_campaigns())


def test_a_wrong_name_is_answered_with_the_nearest(project: Path) -> None:
    with pytest.raises(SpecError, match="no campaign 'aa'"):
        open_campaign("aa")
