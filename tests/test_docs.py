from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILDER = runpy.run_path(str(ROOT / "tools" / "build_docs.py"), run_name="build_docs")


def test_the_page_of_columns_is_current() -> None:
    made = BUILDER["columns_page"]()
    assert (ROOT / "docs" / "columns.md").read_text(encoding="utf-8") == made, "run `make docs`"


def test_the_page_has_every_table_and_every_column() -> None:
    page = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [
        *("runs", "requests", "decode_windows", "drafters", "offline", "settings", "parsed")
    ]
    for column in ("log_median_tok_per_s", "steps_histogram", "opening", "cuda_graph_share", "extra"):
        assert f"| `{column}` |" in page, column
    # A row a column, and every row whole.
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert {row.count(" |") for row in rows} == {5}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/run-folder.md"])
def test_links_to_files_of_the_repository_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    missing = [target for target in targets if target and not ((ROOT / page).parent / target).exists()]
    assert missing == []
