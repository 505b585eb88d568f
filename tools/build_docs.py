#!/usr/bin/env python3
"""Write docs/columns.md from the declarations of the columns, and docs/glossary.md from the words of the pages.

python tools/build_docs.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.table.columns import TABLES, describe
from workbench.table.export import PARSED
from workbench.words import WORDS, Word

DOCS = Path(__file__).resolve().parents[1] / "docs"

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


GLOSSARY = """\
# Glossary

Made by `tools/build_docs.py` from `workbench/words.py`; change it there and run `make docs`. Pages define the words
that they use in the same way. A word is called alike in flags, columns, tables, labels of plots and sentences.
"""


def glossary_page() -> str:
    """The words as Markdown, each a section, so that it can be linked to."""
    return GLOSSARY + "".join(map(_word, WORDS))


def _word(word: Word) -> str:
    others = [form for form in word.also if not form.startswith(word.name[:-1])]  # a plural needs no telling
    also = f" Also written: {', '.join(others)}." if others else ""
    column = f" Column: [`{word.column}`](columns.md)." if word.column else ""
    return f"\n## {word.name}\n\n{word.meaning}{also}{column}\n"


def main() -> int:
    for name, page in (("columns", columns_page()), ("glossary", glossary_page())):
        (DOCS / f"{name}.md").write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
