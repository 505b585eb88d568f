from __future__ import annotations

import pytest

from workbench.markup import sentence


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("run `workbench tune c` now", "run <code>workbench tune c</code> now"),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
        ("one ` alone", "one ` alone"),
        ("over `two\nlines`", "over `two\nlines`"),
        ("`<script>` & `</code>`", "<code>&lt;script&gt;</code> &amp; <code>&lt;/code&gt;</code>"),
        ("use `x --force`", 'use <code>x <span class="flag">--force</span></code>'),
        ("EAGLE-3 --tp-size", '<span class="flag">EAGLE-3</span> <span class="flag">--tp-size</span>'),
    ],
)
def test_a_sentence_is_escaped_with_its_code_and_flags(text: str, html: str) -> None:
    assert str(sentence(text)) == html
