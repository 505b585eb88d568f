from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.errors import SpecError, UsageError
from workbench.explore import OpenCampaign, pick_campaign

WIDGET = "application/vnd.jupyter.widget-view+json"


def test_the_first_is_chosen_unless_one_is_named(project: Path) -> None:
    assert pick_campaign().chosen.name == "a"
    assert pick_campaign("b").chosen.name == "b"
    with pytest.raises(SpecError, match="no campaign 'c'"):
        pick_campaign("c")


def test_without_widgets_it_is_a_sentence(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    picked = pick_campaign("b")
    shown = picked._repr_mimebundle_()
    assert set(shown) == {"text/html", "text/plain"}
    assert str(shown["text/plain"]).startswith("Campaign: b. Others: a.")


def test_with_widgets_there_is_a_menu_that_changes_what_is_chosen(opened: OpenCampaign) -> None:
    picked = pick_campaign("b")
    shown = picked._repr_mimebundle_()
    # What a page or a reader without widgets shows is still there.
    assert {WIDGET, "text/html", "text/plain"} <= set(shown)
    assert str(shown["text/plain"]).startswith("Campaign: b.")
    menu, below = picked.menu().children
    assert menu.options == ("a", "b")
    assert "Campaign b" in below.value
    menu.value = "a"
    assert (picked.value, picked.chosen.name) == ("a", "a")
    assert "Campaign a" in below.value


def test_a_log_is_picked_by_its_server(opened: OpenCampaign) -> None:
    picked = opened.pick_log()
    assert picked.value == "s-fast" and picked.chosen.name == "s-fast"
    assert "Timeline of a/s-fast" in picked._repr_html_()
    with pytest.raises(UsageError, match="no server log 'x'"):
        opened.pick_log("x")


def test_where_there_is_nothing_to_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    picked = pick_campaign()
    assert repr(picked) == "There is no campaign to choose."
    assert WIDGET not in picked._repr_mimebundle_()
    with pytest.raises(UsageError, match="there is no campaign to choose"):
        assert picked.chosen
