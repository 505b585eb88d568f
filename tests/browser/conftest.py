from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_checks import ARGUMENTS, CHROMIUM
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium of the system; without it the test is skipped, in CI it fails."""
    if not Path(CHROMIUM).exists():
        reason = f"{CHROMIUM} is not installed (apt-get install chromium)"
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(f"{reason}; browser tests must run in CI")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()
