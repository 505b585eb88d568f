from __future__ import annotations

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from run_folders import SPECULATIVE, write_campaign, write_run, write_text

from workbench.explore import OpenCampaign, open_campaign
from workbench.explore.campaign import Curve


def test_a_campaign_shows_what_it_is_and_what_it_holds(opened: OpenCampaign) -> None:
    assert repr(opened) == "Campaign a: T on one GPU\n4 runs, 1 drafter, 1 server log."
    page = BeautifulSoup(opened._repr_html_(), "html.parser")
    assert "Does it pay?" in page.get_text()
    assert (opened.name, opened.info.target) == ("a", "T")


def test_the_answer_is_that_of_the_page(opened: OpenCampaign) -> None:
    said = opened.answer()
    assert said.headline["best speedup"] == "1.20x"
    assert repr(said).startswith(said.sentence)
    assert opened.answer() is said


def test_every_log_is_diagnosed(opened: OpenCampaign) -> None:
    found = opened.diagnose()
    assert found.df["server"].tolist() == ["s-fast"]
    assert found.df["verdict"][0] in repr(found)


def test_speedups_are_drawn_and_listed(opened: OpenCampaign) -> None:
    view = opened.speedups()
    # 120 / 100 and 80 / 100.
    assert dict(zip(view.df["run_id"], view.df["speedup"], strict=True)) == {"fast": 1.2, "slow": 0.8}
    page = BeautifulSoup(view._repr_html_(), "html.parser")
    assert len(page.find_all("img")) == len(page.find_all("table")) == 1


def test_a_campaign_without_pairs_says_so(project: Path) -> None:
    lone = open_campaign("b")
    assert repr(lone.compare()) == "No run of this campaign has a baseline to be compared with."
    assert repr(lone.speedups()) == "No run of this campaign has speculation and a baseline."
    assert lone.curve().fit is None
    assert repr(lone.pick_log()) == "There is no server log to choose."
    assert repr(lone.logs) == "0 server logs.\nNo server log of this campaign was kept."


def test_a_curve_over_training_sizes(project: Path) -> None:
    sizes = {"x500": 500, "x1000": 1000, "x2000": 2000}
    folder = write_campaign(
        project / "data" / "recorded" / "curve",
        drafters=[
            {"name": name, "target": "T", "training_samples": size, "data_mix": "m", "recipe": "r", "seed": 0}
            for name, size in sizes.items()
        ],
    )
    for length, name in zip((1.4, 1.6, 1.8), sizes, strict=True):
        figures = {"source": "a test", "accept_length": {"low": length, "high": length}}
        write_run(folder / name, **{**SPECULATIVE, "drafter": name}, files={"reported.json": figures})
    curve = open_campaign("curve").curve()
    assert isinstance(curve, Curve) and curve.fit is not None
    # 0.2 more at each doubling, exactly.
    assert curve.fit.per_doubling == pytest.approx(0.2)
    assert sorted(curve.points["training_samples"].tolist()) == [500, 1000, 2000]
    assert "Each doubling of the training samples adds 0.20" in curve.sentence
    assert len(BeautifulSoup(curve._repr_html_(), "html.parser").find_all("img")) == 1


def test_problems_are_none_or_are_shown(project: Path, opened: OpenCampaign) -> None:
    assert opened.problems is None
    write_text(project / "data" / "recorded" / "b" / "base" / "spec.json", "{")
    problems = open_campaign("b").problems
    assert problems is not None
    assert "spec.json" in repr(problems) and len(problems.df) >= 1
    assert "problem" in repr(open_campaign("b"))


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_whatever_a_campaign_holds_is_escaped(project: Path) -> None:
    folder = write_campaign(
        project / "data" / "runs" / "<b>h",
        title=HOSTILE,
        question=HOSTILE,
        notes=[HOSTILE],
        drafters=[{"name": HOSTILE}],
    )
    figures = {"source": HOSTILE, "output_tok_per_s": {"low": 10, "high": 10}}
    write_run(folder / "<img src=y>", server_id="<i>s", label=HOSTILE, files={"reported.json": figures})
    write_run(
        folder / "<u>r", **SPECULATIVE, server_id="<i>t", label=HOSTILE, files={"reported.json": figures, "x": "{"}
    )
    held = open_campaign("<b>h")
    shown = [held, held.answer(), held.runs, held.runs[0], held.runs[1], held.compare("<u>r", "<img src=y>")]
    shown += [held.logs, held.diagnose(), held.speedups(), held.curve(), held.runs.columns]
    for each in shown:
        page = BeautifulSoup(each._repr_html_(), "html.parser")
        assert page.find(["script", "b", "u", "i"]) is None, type(each)
        assert all(image["src"].startswith("data:") for image in page.find_all("img"))
