"""A campaign that came from a stranger, through every report notebook, in a real browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from browser_checks import faults, look_at
from notebook_files import HOSTILE
from playwright.sync_api import Browser
from readers import ROOT, campaign_files, write_campaign_files
from tune_answer import ANSWER, write_answer

from workbench import reports
from workbench.paths import ROOT_ENV

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "<img src=x onerror=window.pwned=30>"  # no slash: also a folder's name
MATHS = r"$\href{javascript:window.pwned=31}{x}$ \(\unicode{x3c}script>\) [a](javascript:window.pwned=33)"
VECTOR = "<svg onload=window.pwned=32>"
TEXT = f"{HOSTILE}{MATHS}{VECTOR}\x1b[31m\u202eabc\u2066"
# What may hold any text; the others are names of things that must exist, numbers, or words of a list.
FREE = {
    "title",
    "question",
    "machine",
    "source",
    "notes",
    "label",
    "recipe",
    "data_mix",
    "gpu_name",
    "reason",
    "target",
    "config",
    "why",
    "command",
    "standing",
}
NAMED = {"drafter", "prompt_set", "served_as"}
LOG = (
    f"[2026-01-05 10:00:00] server_args=ServerArgs(model_path='{HOSTILE}', speculative_algorithm='EAGLE3')\n"
    f"[2026-01-05 10:00:01] WARNING {TEXT}\n[2026-01-05 10:00:02] ERROR Traceback {TEXT}\n"
    f"RuntimeError: {TEXT}\n"
)


def spoilt(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: spoilt(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [spoilt(each, key) for each in value]
    if isinstance(value, str) and key in FREE:
        return f"{value} {TEXT}"
    return NAME if isinstance(value, str) and key in NAMED else value


def stranger(folder: Path) -> Path:
    """The recorded runs with hostile text wherever a stranger could write some."""
    changed: dict[str, bytes] = {}
    for place, data in campaign_files().items():
        if place.endswith(".json"):
            value = spoilt(json.loads(data))
            if place.endswith(("drafters.json", "kernels")):
                value = [{**each, "name": NAME} for each in value[:1]]
            if place.endswith("spec.json"):
                value["target"] = {"name": NAME, "notes": TEXT}
                value["server"]["flags"] = {"served_model_name": TEXT, NAME: TEXT}
            if place.endswith("resolved.json"):
                value = {**value, "served_model_name": TEXT, NAME: TEXT}
            if place.endswith("step_profile.json"):
                value["kernels"] = [{**each, "name": TEXT} for each in value["kernels"]]
            changed[place] = json.dumps(value).encode()
        elif place.endswith("requests.jsonl"):
            lines = [{**json.loads(line), "task": TEXT, "error": TEXT} for line in data.splitlines()]
            changed[place] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        elif place.endswith("server.log"):
            changed[place] = data + LOG.encode()
    write_campaign_files(folder, **changed)
    write_answer(folder, **{name: spoilt(value) for name, value in ANSWER.items()})
    for old, new in (("base", f"base {NAME}"), ("run", f"run {NAME}")):
        (folder / old).rename(folder / new)
    broken = folder / f"broken {NAME}"
    broken.mkdir()
    (broken / "spec.json").write_text(TEXT)
    return folder


def test_no_page_of_a_hostile_campaign_does_anything(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    stranger(tmp_path / "data" / "runs" / f"campaign {NAME}")
    shutil.copy(ROOT / "data" / "reference_points.csv", tmp_path / "data")
    said: list[str] = []
    notebooks = [name for name in reports.NOTEBOOKS if "compare" not in name]
    outcome = reports.build(campaigns=None, notebooks=notebooks, workers=2, say=said.append)
    pages = sorted(outcome.index.parent.glob("*.html"))
    assert len(pages) == len(notebooks) + 1, said
    whole = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert whole.count("window.pwned") > 20  # it is shown, as text
    for page in pages:
        assert "Content-Security-Policy" in page.read_text(encoding="utf-8")
        seen = look_at(browser, page, scheme="light", width=1400, axe=False)
        assert [fault for fault in faults(seen, page, width=1400) if "sideways" not in fault] == [], page.name
        assert seen.blocked == []
    failed = [line for line in said if line.startswith("[") and " failed " in line]
    assert failed == []
