"""A page made again with other content, and the index of all."""

from __future__ import annotations

import contextlib
from pathlib import Path

from notebook_files import code, finished_run, markdown, stream, write_notebook

from workbench.index import build_index
from workbench.report.render import render_page
from workbench.reuse import is_unchanged, last_summary


def _make(root: Path, word: str) -> None:
    reports = root / "reports"
    executed = write_notebook(
        root.with_name(f"{root.name}-{word}.ipynb"), markdown("# Page"), code("print()", outputs=[stream(word)])
    )
    render_page(executed, reports / "p.html", run=finished_run(executed), campaign="c", made_from=word)
    build_index(reports)


def prepare(root: Path) -> None:
    (root / "notebooks").mkdir(parents=True)
    _make(root, "earlier")
    write_notebook(root / "reports" / "p.ipynb", markdown("# Page"))


def meanwhile(_: Path) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def act(root: Path) -> None:
    _make(root, "later")


def read(root: Path) -> None:
    """The page is whole, and is not taken for another than it is."""
    page = root / "reports" / "p.html"
    text, summary = page.read_text(), last_summary(page)
    assert text.rstrip().endswith("</html>") and ("earlier" in text) != ("later" in text)
    assert summary is not None
    assert not is_unchanged(page, "later") or "later" in text
    assert (root / "reports" / "index.html").read_text().rstrip().endswith("</html>")


def go_on(root: Path) -> None:
    act(root)
    assert is_unchanged(root / "reports" / "p.html", "later") and "later" in (root / "reports" / "p.html").read_text()
    read(root)
    index = (root / "reports" / "index.html").read_text()
    assert "p.html" in index and "Not listed above" not in index
