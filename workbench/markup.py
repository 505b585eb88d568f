"""Sentences as HTML, for pages and for what notebooks display."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_CODE = re.compile(r"`([^`\n]{1,300})`")
# Flags, which may not be broken, up to what fits a line of a narrow screen; a name that reads badly when it is.
_FLAG = re.compile(r"(?<![\w-])(?:--[a-z][a-z0-9-]{0,37}|EAGLE-\d)(?![\w-])")


def sentence(text: str) -> Markup:
    """Escaped text in which flags are not broken over two lines, and what stands between backticks is code."""
    # The patterns hold no character that escaping makes or changes.
    told = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(_FLAG.sub(r'<span class="flag">\g<0></span>', told))  # noqa: S704
