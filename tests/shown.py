"""What notebooks display, caught instead of shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from bs4 import BeautifulSoup
from markupsafe import Markup

import workbench.show
import workbench.theme.show


@dataclass
class Shown:
    """Every piece of HTML and the text beside it, in order."""

    html: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def __call__(self, page: Markup, text: str) -> None:
        self.html.append(str(page))
        self.text.append(text)

    @property
    def soup(self) -> BeautifulSoup:
        return BeautifulSoup("".join(self.html), "html.parser")

    def cells(self) -> list[list[str]]:
        """Header and rows of the only table."""
        (table,) = self.soup.find_all("table")
        return [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]


def catch(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Have everything that is displayed caught."""
    caught = Shown()
    display: Callable[[Markup, str], None] = caught
    monkeypatch.setattr(workbench.show, "display_html", display)
    monkeypatch.setattr(workbench.theme.show, "display_html", display)
    return caught
