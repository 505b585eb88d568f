from __future__ import annotations

from workbench.preflight import CheckResult, Finding, Severity
from workbench.preflight.text import counted, render_findings, render_result

ERROR = CheckResult("a", Severity.ERROR, "it is wrong", "server.x", "put it right", "it fails")
NOTE = CheckResult("b", Severity.NOTE, "look", "server.y", "nothing")


def test_a_result_is_a_block_of_what_where_why_and_next() -> None:
    assert render_result(ERROR) == ("ERROR  it is wrong\n  where: server.x\n  why:   it fails\n  next:  put it right")
    assert render_result(NOTE, holds_for="all") == "NOTE  look\n  where: server.y\n  next:  nothing\n  for:   all"


def test_the_starts_of_a_finding_are_named_or_counted() -> None:
    def holders(*starts: str, of: int) -> str:
        text = render_findings([Finding(NOTE, starts)], starts=of)
        return text.partition("  for:   ")[2]

    assert holders("s", of=1) == "the only start"
    assert holders("s", of=9) == "s"
    assert holders("s", "t", of=2) == "all 2 starts"
    assert holders("s", "t", of=9) == "2 of 9 starts: s, t"
    assert holders("s", "t", "u", "v", "w", of=9) == "5 of 9 starts: s, t, u and 2 more"
    assert holders(of=9) == ""


def test_findings_are_counted_by_severity() -> None:
    assert counted([Finding(ERROR), Finding(NOTE), Finding(NOTE)]) == "1 error, 0 warnings, 2 notes"
    assert counted([]) == "0 errors, 0 warnings, 0 notes"
