"""Small notebooks written by hand, sources and executed ones, and the record of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.notebook import NotebookRun
from workbench.spec import RunState

HOSTILE = (
    "<script>window.pwned=1</script><img src=x onerror=window.pwned=2></style></title></pre>"
    "<style>main{display:none}</style>![x](javascript:window.pwned=3) [y](javascript:window.pwned=4) "
    "<meta http-equiv=refresh content='0;url=http://example.invalid/'>"
)


def code(
    source: str, *tags: str, outputs: list[dict[str, Any]] | None = None, count: int | None = None
) -> dict[str, Any]:
    """A code cell; one with outputs counts as executed."""
    if outputs and count is None:
        count = 1
    return {
        "cell_type": "code",
        "id": f"c{abs(hash((source, tags))) % 10**8}",
        "metadata": {"tags": list(tags)},
        "source": source,
        "outputs": outputs or [],
        "execution_count": count,
    }


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": f"m{abs(hash(source)) % 10**8}", "metadata": {}, "source": source}


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(data: dict[str, Any], metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": metadata or {}}


def raised(name: str, message: str, traceback: list[str] | None = None) -> dict[str, Any]:
    return {"output_type": "error", "ename": name, "evalue": message, "traceback": traceback or [f"{name}: {message}"]}


def write_notebook(path: Path, *cells: dict[str, Any]) -> Path:
    notebook = {
        "cells": list(cells),
        "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def finished_run(
    output: Path, status: RunState = RunState.OK, reason: str | None = None, **parameters: object
) -> NotebookRun:
    """The record of a run of 12.5 s on 3 November 2026."""
    return NotebookRun(
        notebook=Path("/somewhere/notebooks/20_report.ipynb"),
        output=output,
        status=status,
        reason=reason,
        started_at="2026-11-03T10:00:00+00:00",
        finished_at="2026-11-03T10:00:12+00:00",
        duration_s=12.5,
        parameters=dict(parameters),
        exit_code=0 if status is RunState.OK else 1,
    )
