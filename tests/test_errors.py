from __future__ import annotations

from pathlib import Path

import pytest

from workbench import errors
from workbench.errors import InputError, LaunchError, UsageError, WorkbenchError


def test_a_message_says_what_where_and_what_next() -> None:
    error = InputError("not JSON", where=Path("a/spec.json"), next_step="mend the file")
    assert str(error) == "a/spec.json: not JSON\n  -> mend the file"
    assert (error.what, error.where, error.next_step) == ("not JSON", "a/spec.json", "mend the file")


def test_parts_that_are_not_known_leave_no_trace() -> None:
    assert str(UsageError("no such command")) == "no such command"
    assert str(UsageError("no such command", next_step="ask --help")) == "no such command\n  -> ask --help"


def test_a_launch_error_ends_with_the_lines_of_the_log() -> None:
    error = LaunchError("it died", where="server.log", next_step="look", kind="oom", tail=("a", "b"))
    assert str(error) == "server.log: it died\n  -> look\n  | a\n  | b"
    assert (error.kind, error.tail, LaunchError("x").kind) == ("oom", ("a", "b"), "unknown")


def test_a_notebook_shows_the_message_without_the_path_through_the_code() -> None:
    error = errors.UsageError("no column 'x'", next_step="did you mean 'y'?")
    assert error._render_traceback_() == ["UsageError: no column 'x'\n  -> did you mean 'y'?"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("UsageError", 2),
        ("InputError", 3),
        ("LogError", 3),
        ("RunFolderError", 3),
        ("SpecError", 3),
        ("CheckpointError", 3),
        ("NotebookError", 4),
        ("MissingToolError", 5),
        ("LaunchError", 6),
    ],
)
def test_exit_codes_are_the_documented_ones(name: str, code: int) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, WorkbenchError)
    assert kind("what").exit_code == code


def test_the_tree_in_the_docstring_names_every_error_once() -> None:
    kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, WorkbenchError)]
    assert errors.__doc__ is not None
    assert [errors.__doc__.count(f" {name} ") + errors.__doc__.count(f"{name}\n") for name in kinds] == [1] * len(kinds)
