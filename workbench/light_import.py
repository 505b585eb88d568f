"""Import a library without an optional dependency that it would load and that is not used here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# jsonschema (under nbformat, so under papermill and nbconvert) checks IRIs with this when it is installed, as it is
# with JupyterLab; building its grammar takes 1.9 s of a 2.6 s import.
IRI_GRAMMAR = "rfc3987_syntax"
# papermill imports it for notebooks on HDFS: 0.3 s.
HDFS = "pyarrow"


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Within the block, ``import name`` raises ImportError unless the module is loaded already."""
    blocked = [name for name in names if name not in sys.modules]
    for name in blocked:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in blocked:
            del sys.modules[name]
