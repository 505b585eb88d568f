"""Fields that are read when somebody asks for them: most pages need few of the tables that a campaign has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

import pandas as pd

Readers = Mapping[str, Callable[[], pd.DataFrame]]


class Lazy:
    """Base of a dataclass of which fields may be read at their first use."""

    def put_off(self, readers: Readers) -> Self:
        """Itself, with these fields to be read when they are asked for; what they held is forgotten."""
        for name in readers:
            del self.__dict__[name]
        self.__dict__["_readers"] = readers
        return self

    def but(self, **changes: object) -> Self:
        """Itself with other values in some fields; what was put off and is not among them stays so."""
        other = copy.copy(self)
        readers = self.__dict__.get("_readers", {})
        other.__dict__.update(changes, _readers={name: readers[name] for name in readers if name not in changes})
        return other

    def reads(self, name: str) -> bool:
        """Whether a field is what its reader gives, read already or not: no other value was put in its place."""
        return name in self.__dict__.get("_readers", {})

    if not TYPE_CHECKING:  # any name would do for the type checker

        def __getattr__(self, name: str) -> pd.DataFrame:
            """Called for what is not there (yet)."""
            read = self.__dict__.get("_readers", {}).get(name)
            if read is None:
                raise AttributeError(name)
            self.__dict__[name] = held = read()
            return held
