"""Text that has broken something somewhere: paths, shells, markup, terminals, number readers."""

from __future__ import annotations

MARKUP = "<script>window.pwned=1</script><img src=x onerror=window.pwned=2>"

NAMES = {
    "parent": "../../escaped",
    "parent alone": "..",
    "here": ".",
    "absolute": "/tmp/escaped",
    "windows": "..\\..\\escaped",
    "nul": "a\x00b",
    "newline": "a\nb",
    "carriage return": "a\rb",
    "escape": "a\x1b[2J\x1b]0;title\x07b",
    "markup": MARKUP,
    "shell": "$(touch escaped); `touch escaped` | touch escaped & touch escaped",
    "option": "--help",
    "blank": " ",
    "right to left": "a\u202egnp.exe\u2066b",
    "surrogate": "a\ud800b",
    "long": "n" * 300,
    "template": "{{ 7 * 7 }}{% raw %}",
    "format": "%s%n{0}{name}",
    "hidden": ".hidden",
    "working folder": "_servers",
}
"""Names of runs, campaigns, prompt sets and drafters, each by what is wrong with it."""

TEXTS = (
    *NAMES.values(),
    "",
    "\ufeff",
    "nan",
    "Infinity",
    "-0",
    "1e999",
    "9" * 5000,
    "0x10",
    "1_000",
    "٣",
    "true",
    "2026-13-45",
    "1:1:1",
    "=cmd|' /C calc'!A0",
    "\\N{BELL}\\x00\\u0000",
    "🦅" * 50,
    "e\u0301" * 30,
)

NUMBERS = (0, -1, 1, 2, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400)
DECIMALS = (0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), float("nan"))
BYTES = (
    b"\x00",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n",
    b"\x1b[31m",
    b"\x1f\x8b\x08\x00",
    b'"',
    b"{",
    b"[" * 2000,
    b"- " * 200,
    b"{" * 500,
    b"&a [*a, *a]",
    b"!!python/object/apply:os.system [touch escaped]",
    b": ",
    b"9" * 400,
    b"-",
    b"1e999",
    b"NaN",
    b"\xe2\x80\xae",
    b"\t",
    b"%",
    b"\\u0000",
    b"\\ud800",
)
