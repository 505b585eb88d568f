"""What a session shows: HTML where there is a browser, text where there is none, both made by the pages' functions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
from markupsafe import Markup

from workbench import show
from workbench.analysis.answers import Answer
from workbench.analysis.frames import records
from workbench.errors import UsageError
from workbench.theme.show import collecting, digits, show_table

# Pages bring their own style and drop this one. JupyterLab sets every cell flush right, which only numbers should be;
# its rules are outdone by naming the class twice.
_STYLE = Markup(
    """<style>
div.wb-explore.wb-explore {
  table { margin: 0 0 .3em }
  th:not(.num), td:not(.num) { text-align: left }
  th, td { vertical-align: top }
  th[scope=row], .num { white-space: nowrap }
  td.long { min-width: 18em }
  caption { caption-side: top; text-align: left; font-weight: 600; padding: .3em 0 }
  p { margin: .3em 0 }
  figure { margin: .5em 0 }
  figcaption, .wb-empty { opacity: .75 }
  .wb-answer { font-size: 1.1em; font-weight: 600 }
  details { margin: .4em 0 }
  summary { cursor: pointer }
  .finding { border-left: 3px solid #8888; padding-left: .7em; margin: .6em 0 .9em }
  .badge { border: 1px solid; border-radius: 3px; padding: 0 .4em; font-size: .85em }
  dl { display: grid; grid-template-columns: max-content 1fr; gap: .1em .8em; margin: .4em 0 }
  dt { font-weight: 600 }
  dd { margin: 0 }
}
</style>"""
)


class Displayed:
    """Base of whatever has a rich display and a plain one: both hold what ``_show`` displays."""

    def _show(self) -> None:
        raise NotImplementedError

    def _shown(self) -> tuple[str, str]:
        with collecting() as pieces:
            self._show()
        html = Markup("").join(page for page, _ in pieces)
        text = "\n".join(text for _, text in pieces)
        return str(Markup('{}<div class="wb-explore">{}</div>').format(_STYLE, html)), text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        """Both at once, so that a figure is drawn once."""
        html, text = self._shown()
        return {"text/html": html, "text/plain": text}

    def _repr_html_(self) -> str:
        return self._shown()[0]

    def __repr__(self) -> str:
        return self._shown()[1]


class View(Displayed):
    """A figure or a table; ``df`` holds the rows behind it."""

    def __init__(self, draw: Callable[[], None], df: pd.DataFrame) -> None:
        self._draw = draw
        self.df = df

    def _show(self) -> None:
        self._draw()


class SaidAnswer(Displayed):
    """One sentence, the ``points`` that carry it, the ``actions`` to take, and its numbers as ``headline``."""

    def __init__(self, said: Answer) -> None:
        self.sentence, self.points, self.actions = said.sentence, said.points, said.actions
        self.headline = show.headline(said)
        self._said = said

    def _show(self) -> None:
        show.answer(self._said)
        if self.points:
            show.points(self._said)


def facts_table(row: pd.Series, units: dict[str, str]) -> pd.DataFrame:
    """What is known of one row: column, value, unit."""
    (known,) = records(row.to_frame().T)
    told = {name: value for name, value in known.items() if value is not None and not isinstance(value, list)}
    rows = [{"column": name, "value": cell(value), "unit": units.get(name, "")} for name, value in told.items()]
    return pd.DataFrame(rows, columns=["column", "value", "unit"])


def whole_table(table: pd.DataFrame, *, caption: str, name: str) -> None:
    """A table with all of its rows, whose cells are texts."""
    show_table(table, caption=caption, missing="", name=name, max_rows=len(table))


def cell(value: object) -> str | None:
    """A value as tables show it."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return digits(value) if isinstance(value, float) else str(value)


def unknown_name(what: str, name: object, there: Iterable[str]) -> UsageError:
    """The error for a name that is not there, with the nearest one."""
    names = list(there)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(names[:20]) or 'none'}"
    return UsageError(f"no {what} {name!r}", next_step=hint)
