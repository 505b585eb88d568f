"""Choosing one of several: a drop-down menu where ipywidgets is there, a sentence where it is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from workbench import show
from workbench.errors import UsageError
from workbench.explore.displays import Displayed, unknown_name

_Chosen = TypeVar("_Chosen")


class Picker(Displayed, Generic[_Chosen]):
    """One of several by name. ``value`` is the name, ``chosen`` what it names; a menu changes both.

    Nothing else depends on the menu: without it, as in batch, ``value`` is what the call was given.
    """

    def __init__(
        self,
        what: str,
        options: Mapping[str, _Chosen],
        value: str | None,
        preview: Callable[[_Chosen], Displayed],
    ) -> None:
        if value is not None and value not in options:
            raise unknown_name(what.lower(), value, options)
        self.value = value
        self._what, self._options, self._preview = what, options, preview

    @property
    def chosen(self) -> _Chosen:
        """What is chosen now.

        Raises
        ------
        UsageError
            When there is nothing to choose from.
        """
        if self.value is None:
            raise UsageError(
                f"there is no {self._what.lower()} to choose", next_step="look at what was read: .problems"
            )
        return self._options[self.value]

    def _show(self) -> None:
        if self.value is None:
            show.note(f"There is no {self._what.lower()} to choose.")
            return
        others = [name for name in self._options if name != self.value]
        also = f" Others: {', '.join(others)}." if others else ""
        show.note(f"{self._what}: {self.value}.{also}")
        self._preview(self.chosen)._show()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        plain = super()._repr_mimebundle_()
        if self.value is None:
            return plain
        try:
            return {**plain, **self.menu()._repr_mimebundle_(), "text/plain": plain["text/plain"]}
        except ImportError:
            return plain

    def menu(self) -> Any:
        """The drop-down menu as a widget, with what is chosen below it."""
        import ipywidgets

        menu = ipywidgets.Dropdown(
            options=list(self._options),
            value=self.value,
            description=self._what,
            style={"description_width": "initial"},
        )
        below = ipywidgets.HTML(self._preview(self.chosen)._repr_html_())

        def choose(change: Mapping[str, str]) -> None:
            self.value = change["new"]
            below.value = self._preview(self.chosen)._repr_html_()

        menu.observe(choose, names="value")
        return ipywidgets.VBox([menu, below])
