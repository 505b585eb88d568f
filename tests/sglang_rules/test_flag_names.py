"""Expected flags are those of the server_args.py of the released wheels."""

from __future__ import annotations

import pytest

from workbench.sglang_rules.flag_names import READ, flag_span, flags_of, is_flag, nearest_flag
from workbench.sglang_rules.flags import ALIASES, FLAG_SINCE, RENAMED, flag_name
from workbench.sglang_rules.versions import at_least, version_key


@pytest.mark.parametrize(
    ("flag", "version", "there"),
    [
        ("--tp-size", "0.4.9", True),
        ("--tensor-parallel-size", None, True),
        ("--cuda-graph-max-bs", "0.5.14", True),
        ("--cuda-graph-max-bs", "0.5.20", False),
        ("--cuda-graph-max-bs-decode", "0.5.12", False),
        ("--cuda-graph-max-bs-decode", "0.5.14", True),
        ("--speculative-adaptive", "0.5.9", False),
        ("--speculative-adaptive", "0.5.12", True),
        # Between two wheels that were read, what either of them has is not refused.
        ("--speculative-adaptive", "0.5.11", True),
        ("--cuda-graph-max-bs", "0.5.18", True),
        # Older and newer than all that were read.
        ("--tp-size", "0.3.6", True),
        ("--tp-size", "0.9.0", True),
        ("--tp-size", "main", True),
        ("--cuda-graph-max-bs", "main", False),
        ("--no-such-flag", None, False),
    ],
)
def test_which_release_has_a_flag(flag: str, version: str | None, there: bool) -> None:
    assert is_flag(flag, version) is there


def test_the_table_is_in_order() -> None:
    assert sorted(READ, key=version_key) == list(READ)
    assert len(flags_of("0.4.6.post5")) == 150 and len(flags_of("0.5.14")) == 431 and len(flags_of("0.5.23")) == 547


def test_a_misspelt_flag_has_a_nearest_one() -> None:
    assert nearest_flag("--mem-fracton-static", "0.5.14") == "--mem-fraction-static"
    assert nearest_flag("--zzzz") is None
    assert flag_span("--zzzz") is None


def test_the_other_tables_speak_of_flags_that_there_are() -> None:
    for key, since in FLAG_SINCE.items():
        span = flag_span("--" + key.replace("_", "-"))
        assert span is not None, key
        # A wheel that has it is not older than the version it came with.
        assert at_least(span[0], since) or span[0] == READ[0], key
    for rename in RENAMED:
        for name in (rename.old, rename.new):
            assert flag_span("--" + name.replace("_", "-")) is not None
        assert not is_flag("--" + rename.old.replace("_", "-"), rename.gone)
    for setting in ALIASES.values():
        assert is_flag(flag_name(setting))
