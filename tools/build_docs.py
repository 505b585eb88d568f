#!/usr/bin/env python3
"""Write docs/columns.md from the declarations of the columns.

python tools/build_docs.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.table.columns import TABLES, describe
from workbench.table.export import PARSED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "columns.md"

HEAD = """\
# Columns

Made by `tools/build_docs.py` from `workbench/table/columns.py` and `workbench/table/export.py`; change it there and run
`make docs`.

Units stand in the names (`_s`, `_tok_per_s`); names without a unit are counts, shares or texts. What is not known is
missing (NaN, NA, NaT or None), never 0.
"""
ABOUT = {
    "runs": "One row a run: what was asked, what the server used, what came out.",
    "requests": "One row a request that a client sent.",
    "decode_windows": (
        "One row a decode line of a server log, of one voice a data parallel rank: what happened since the line before."
    ),
    "drafters": "One row a draft checkpoint of a campaign.",
    "offline": "Accept length of a drafter by number of steps, walked without a server.",
    "settings": "One row a run and setting: what was asked for, and what the server says it uses.",
    "parsed": "What `workbench parse` writes: decode lines as printed, of SGLang and (speculative metrics) of vLLM.",
}


def columns_page() -> str:
    """The page as Markdown."""
    tables = {**TABLES, "parsed": PARSED}
    return HEAD + "".join(f"\n## {name}\n\n{ABOUT[name]}\n\n{describe(columns)}" for name, columns in tables.items())


def main() -> int:
    PAGE.write_text(columns_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
