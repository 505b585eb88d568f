"""Every page of every recorded campaign, as a reader gets it, in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from browser_checks import faults, look_at
from playwright.sync_api import Browser
from readers import ROOT

from workbench import reports
from workbench.paths import ROOT_ENV

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_no_recorded_page_has_a_fault(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """axe finds nothing serious, nothing scrolls sideways, everything has a description, no page is over 3 MB."""
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    shutil.copytree(ROOT / "data" / "recorded", tmp_path / "data" / "recorded")
    for table in (ROOT / "data").glob("*.csv"):
        shutil.copy(table, tmp_path / "data")
    outcome = reports.build(campaigns=None, notebooks=None, workers=2, say=lambda _: None)
    assert outcome.all_ok, outcome.summary
    pages = sorted(outcome.index.parent.glob("*.html"))
    assert len(pages) > 20
    found = {}
    for page in pages:
        for scheme, width in (("light", 400), ("dark", 1400)):
            wrong = faults(look_at(browser, page, scheme=scheme, width=width), page, width=width)
            if wrong:
                found[f"{page.name} {scheme} {width}"] = wrong
    assert found == {}
