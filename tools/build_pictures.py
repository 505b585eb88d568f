#!/usr/bin/env python3
"""Make docs/pictures from pages: `make pictures`, after `make pages`. Needs Chromium and the extra `test`.

python tools/build_pictures.py [REPORTS]
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "pictures"
CHROMIUM = "/usr/bin/chromium"
COLOURS = 64  # enough for text and plots, a third of the bytes


@dataclass(frozen=True, slots=True)
class Shot:
    """A part of a page: from its top, or from an element on; sizes in CSS pixels."""

    name: str
    page: str
    width: int
    height: int
    start: str | None = None
    dark: bool = False


SHOTS = (
    Shot("diagnosis", "diagnosis-eagle-flag-server.html", 1120, 760),
    Shot("campaign", "h200_first_trial-report_campaign.html", 1120, 620),
    Shot("break-even", "h200_smollm2-report_campaign.html", 1120, 680, start="#Break-even"),
    Shot(
        "training-data",
        "h200_scaling-report_data_scaling.html",
        1120,
        730,
        start="#Accept-length-against-training-size",
    ),
    Shot("phone", "kimi_k25-report_campaign.html", 400, 760, dark=True),
    Shot("index", "index.html", 1120, 640),
)


def take(browser: Browser, shot: Shot, reports: Path) -> bytes:
    scheme = "dark" if shot.dark else "light"
    tab = browser.new_page(viewport={"width": shot.width, "height": shot.height}, color_scheme=scheme)  # type: ignore[arg-type]
    try:
        tab.goto((reports / shot.page).resolve().as_uri())
        if shot.start:
            tab.eval_on_selector(shot.start, "element => element.scrollIntoView()")
        return tab.screenshot()
    finally:
        tab.close()


def main(arguments: list[str]) -> int:
    reports = Path(arguments[0]) if arguments else ROOT / "reports"
    OUT.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for shot in SHOTS:
            picture = Image.open(io.BytesIO(take(browser, shot, reports))).convert("RGB")
            picture.quantize(COLOURS).save(OUT / f"{shot.name}.png", optimize=True)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
