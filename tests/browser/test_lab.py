"""The tour in real JupyterLab, started by the command, in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from workbench.lab import FIRST
from workbench.paths import ROOT_ENV

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
START_S, OPEN_MS, RUN_MS = 60.0, 60_000, 150_000
# So high that JupyterLab, which draws what is in sight, draws every cell.
VIEWPORT = {"width": 1200, "height": 12_000}
ERROR = '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a running server says of itself: its project is a copy, its user a new one."""
    folder = tmp_path_factory.mktemp("lab")
    project = folder / "project"
    shutil.copytree(ROOT / "notebooks", project / "notebooks")
    for name in ("h200_first_trial", "kimi_k25"):
        shutil.copytree(ROOT / "data" / "recorded" / name, project / "data" / "recorded" / name)
    shutil.copy(ROOT / "data" / "reference_points.csv", project / "data")
    own = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("RUNTIME", "CONFIG", "DATA")}
    own |= {f"JUPYTERLAB_{name}_DIR": str(folder / name) for name in ("SETTINGS", "WORKSPACES")}
    environment = {name: value for name, value in os.environ.items() if name != "JUPYTER_TOKEN"}
    command = [sys.executable, "-m", "workbench", "lab", "--no-browser"]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, env=environment | own | {ROOT_ENV: str(project)}, cwd=project, stdout=output, stderr=output
        )
    try:
        yield told(process, folder)
    finally:
        process.terminate()
        process.wait(30)


def told(process: subprocess.Popen[bytes], folder: Path) -> dict[str, str]:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        for file in (folder / "RUNTIME").glob("jpserver-*.json"):
            # The file is there before its end is, and before anybody listens.
            with contextlib.suppress(ValueError, urllib.error.URLError):
                found: dict[str, str] = json.loads(file.read_text())
                status(f"{found['url']}api")
                return found
        time.sleep(0.1)
    raise AssertionError((folder / "output").read_text()[-2000:])


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.fixture(scope="module")
def tour(browser: Browser, server: dict[str, str]) -> Iterator[tuple[Page, list[str]]]:
    """The page after Run All Cells, and the errors of the page itself."""
    context = browser.new_context(viewport=VIEWPORT)  # type: ignore[arg-type]
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    # As the browser that the command opens: the server's own address.
    page.goto(f"{server['url']}?token={server['token']}")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=OPEN_MS)
    # Without a kernel the menu runs nothing.
    expect(page.locator("#jp-bottom-panel, #jp-main-statusbar").first).to_contain_text("| Idle", timeout=OPEN_MS)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    last = page.locator(".jp-CodeCell .jp-InputPrompt").last
    expect(last).to_have_text(re.compile(r"\[\d+\]:"), timeout=RUN_MS)
    yield page, errors
    context.close()


def test_only_this_machine_can_ask_and_only_with_the_token(server: dict[str, str]) -> None:
    assert server["hostname"] == "127.0.0.1" and server["url"].startswith("http://127.0.0.1:")
    assert len(server["token"]) >= 32
    assert status(f"{server['url']}api/contents") == 403
    assert status(f"{server['url']}api/contents/{FIRST}", Authorization=f"token {server['token']}") == 200


def test_the_whole_tour_runs_and_shows_its_figures(tour: tuple[Page, list[str]]) -> None:
    page, errors = tour
    assert page.locator(ERROR).all_inner_texts() == []
    assert errors == []
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt").all_inner_texts()
    assert prompts == [f"[{place}]:" for place in range(1, len(prompts) + 1)] and len(prompts) > 10
    # The timeline, the curve and the spread.
    pictures = page.locator(".jp-OutputArea figure.wb-figure img")
    expect(pictures).to_have_count(3)
    assert all(picture.evaluate("image => image.naturalWidth > 300") for picture in pictures.all())
    # Campaigns, runs, some of them, the comparison, the curves.
    assert page.locator(".jp-OutputArea .wb-table table").count() == 5
    assert "35 runs." in page.locator(".jp-OutputArea caption").all_inner_texts()
    assert page.locator(".jp-OutputArea details").count() > 5
    name, number = (page.locator(f".wb-table tbody {cell}").first for cell in ("th", "td.num"))
    assert [each.evaluate("e => getComputedStyle(e).textAlign") for each in (name, number)] == ["left", "right"]


def test_a_menu_changes_what_is_chosen(tour: tuple[Page, list[str]]) -> None:
    page, errors = tour
    campaigns, logs = (page.locator(".jp-OutputArea .widget-dropdown select").nth(place) for place in range(2))
    expect(campaigns).to_have_value("h200_first_trial")
    below = page.locator(".jp-OutputArea .widget-vbox")
    campaigns.select_option("kimi_k25")
    expect(below.nth(0)).to_contain_text("Kimi-K2.5 INT4", timeout=OPEN_MS)
    logs.select_option("n500_s3")
    expect(below.nth(1)).to_contain_text("h200_first_trial/n500_s3", timeout=OPEN_MS)
    assert errors == []
