from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

import workbench
from workbench import explore, show
from workbench.explore.displays import Displayed, View, cell, facts_table

DOCS = (Path(__file__).parents[2] / "docs" / "exploring.md").read_text(encoding="utf-8")


def test_what_is_shown_is_made_once_for_both_displays() -> None:
    drawn: list[int] = []
    view = View(lambda: (drawn.append(1), show.plain("a < b"))[1], pd.DataFrame())
    data, _ = DisplayFormatter().format(view)
    assert drawn == [1]
    assert data["text/plain"] == "a < b"
    assert "<p>a &lt; b</p>" in data["text/html"]
    assert (repr(view), view._repr_html_()) == (data["text/plain"], data["text/html"])


def test_what_fails_to_show_leaves_the_next_display_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        repr(View(lambda: 1 / 0, pd.DataFrame()))  # type: ignore[arg-type, return-value]
    assert repr(View(lambda: show.plain("after"), pd.DataFrame())) == "after"


def test_values_as_tables_show_them() -> None:
    row = pd.Series({"n": 9704, "accept_length": 2.5, "on": True, "gone": None, "text": "t", "list": [1]}, dtype=object)
    table = facts_table(row, {"accept_length": "tokens/step"})
    assert table.to_numpy().tolist() == [
        ["n", "9,704", ""],
        ["accept_length", "2.50", "tokens/step"],
        ["on", "yes", ""],
        ["text", "t", ""],
    ]
    assert cell(None) is None


def members() -> list[tuple[str, str]]:
    """Public methods and properties of every class that a session meets."""
    found = {cls for name in explore.__all__ if inspect.isclass(cls := getattr(explore, name))}
    return [
        (cls.__name__, name)
        for cls in sorted(found, key=lambda cls: cls.__name__)
        for name in vars(cls)
        if not name.startswith("_") and name != "menu"
    ]


def test_every_call_is_documented() -> None:
    assert len(members()) > 12
    missing = [(owner, name) for owner, name in members() if not re.search(rf"\.{name}\b", DOCS)]
    assert missing == []
    assert all(f"wb.{name}(" in DOCS for name in workbench.__all__ if name != "__version__")


def test_the_package_offers_its_calls_without_loading_what_they_need() -> None:
    code = (
        "import sys, workbench\n"
        "assert {'open_campaign', 'pick_campaign', 'list_campaigns', 'open_log'} < set(dir(workbench))\n"
        "assert 'pandas' not in sys.modules and 'workbench.explore' not in sys.modules\n"
        "from workbench import open_campaign\n"
        "assert 'pandas' in sys.modules and 'ipywidgets' not in sys.modules\n"
        "try:\n    workbench.nonsense\n"
        "except AttributeError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "module 'workbench' has no attribute 'nonsense'"


def test_every_class_is_displayed() -> None:
    assert all(issubclass(getattr(explore, owner), Displayed) for owner, _ in members())


def test_names_complete(opened: explore.OpenCampaign) -> None:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.user_ns.update(c=opened, wb=workbench)

    def completed(text: str) -> set[str]:
        with provisionalcompleter():
            return {found.text for found in shell.Completer.completions(text, len(text))}

    assert completed("wb.o") >= {"open_campaign", "open_log"}
    assert completed("c.") >= {"answer", "runs", "logs", "compare", "curve", "diagnose", "speedups"}
    assert completed('c.runs["') >= {"base", "fast", "slow"}
    assert completed('c.logs["') == {"s-fast"}
