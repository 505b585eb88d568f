"""The runs of a campaign as a table that can be asked, and one run of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pandas as pd

from workbench import figures, show
from workbench.analysis import views
from workbench.analysis.acceptance import spread_df
from workbench.analysis.wording import count
from workbench.errors import UsageError
from workbench.explore.displays import Displayed, View, facts_table, unknown_name, whole_table
from workbench.table import Tables
from workbench.table.columns import RUNS

# What a condition is made of: comparisons, and, or, not, arithmetic. Calls and attributes would run code.
_CONDITION = (
    *(ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator),
    *(ast.Compare, ast.cmpop, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple),
)


class RunTable(Displayed):
    """Runs, one a row. ``df`` has every column of docs/columns.md; the display shows the ones that matter most."""

    def __init__(self, tables: Tables, df: pd.DataFrame | None = None) -> None:
        self._tables = tables
        self.df = tables.runs if df is None else df

    def where(self, query: str = "", /, **equal: object) -> RunTable:
        """The runs that match.

        Parameters
        ----------
        query
            A condition on the columns: ``"accept_length > 1.5 and num_steps in [3, 5]"``. It compares and
            calculates, and runs no code.
        equal
            Columns and the value each must have; a list allows several.

        Raises
        ------
        UsageError
            For a column that is not there, or a condition that cannot be understood.
        """
        found = self.df
        for name, value in equal.items():
            if name not in found:
                raise unknown_name("column", name, map(str, found.columns))
            allowed = list(value) if isinstance(value, list | tuple | set) else [value]
            found = found[found[name].isin(allowed)]
        return RunTable(self._tables, self._asked(found, query) if query else found)

    def _asked(self, found: pd.DataFrame, query: str) -> pd.DataFrame:
        try:
            odd = [node for node in ast.walk(ast.parse(query.strip(), mode="eval")) if not isinstance(node, _CONDITION)]
            mask = None if odd else found.eval(query.strip(), local_dict={}, global_dict={})
        except Exception as error:  # pandas and its parsers raise whatever they meet
            raise _no_condition(query, str(error)) from error
        if not (isinstance(mask, pd.Series) and pd.api.types.is_bool_dtype(mask.dtype)):
            raise _no_condition(query, "it compares nothing" if mask is not None else "it does more than compare")
        kept: pd.DataFrame = found[mask.fillna(False).astype(bool)]
        return kept

    @property
    def columns(self) -> View:
        """What one may ask for: every column that is known of some run, with its unit and meaning."""
        known = [column for column in RUNS if column.name in self.df and self.df[column.name].notna().any()]
        rows = [{"column": c.name, "unit": c.unit, "meaning": c.meaning} for c in known]
        table = pd.DataFrame(rows, columns=["column", "unit", "meaning"])
        return View(lambda: whole_table(table, caption="Columns of runs.", name="columns"), table)

    def spread(self) -> View:
        """Share of verify steps that accept exactly so many drafts, a line a run."""
        own = self._tables.requests[self._tables.requests["run_id"].isin(self.df["run_id"])]
        return View(lambda: figures.spread(own, self.df), spread_df(own))

    @property
    def ids(self) -> list[str]:
        return [str(name) for name in self.df["run_id"]]

    def _show(self) -> None:
        # Ids, unlike labels, are unique, and they are what compare() takes.
        shown = views.runs_view(self.df.assign(label=self.df["run_id"]))
        caption = f"{count(len(self.df), 'run')}."
        show.table(shown, caption=caption, name="runs", empty="No run matches.", data=self.df)

    def __getitem__(self, run: str | int) -> OneRun:
        """A run by its id (``run_id``) or its place in the table."""
        if isinstance(run, int):
            if not -len(self) <= run < len(self):
                raise UsageError(f"no run at place {run}", next_step=f"there are {count(len(self), 'run')}")
            return OneRun(self.df.iloc[run], self._tables)
        rows = self.df[self.df["run_id"] == run]
        if rows.empty:
            raise unknown_name("run", run, self.ids)
        return OneRun(rows.iloc[0], self._tables)

    def __len__(self) -> int:
        return len(self.df)

    def __iter__(self) -> Iterator[OneRun]:
        return (self[place] for place in range(len(self)))

    def _ipython_key_completions_(self) -> list[str]:
        return self.ids


def _no_condition(query: str, why: str) -> UsageError:
    return UsageError(
        f"this condition cannot be understood: {why}",
        where=query,
        next_step='conditions look like "accept_length > 1.5 and num_steps == 3"; .columns names the columns',
    )


class OneRun(Displayed):
    """One run: ``row`` holds its columns, ``requests`` one row a request."""

    def __init__(self, row: pd.Series, tables: Tables) -> None:
        self.row = row
        self.run_id, self.server_id = str(row["run_id"]), str(row["server_id"])
        self._tables = tables

    @property
    def requests(self) -> pd.DataFrame:
        table = self._tables.requests
        own: pd.DataFrame = table[(table["campaign"] == self.row["campaign"]) & (table["run_id"] == self.run_id)]
        return own

    def _show(self) -> None:
        table = facts_table(self.row, {column.name: column.unit for column in RUNS})
        whole_table(table, caption=f"{self.run_id}: all that is known.", name=self.run_id)
