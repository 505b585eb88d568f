from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from workbench.light_import import hidden


def test_a_hidden_module_cannot_be_imported_inside_and_can_be_outside() -> None:
    sys.modules.pop("this_is_absent", None)
    sys.modules.pop("colorsys", None)
    with hidden("colorsys", "this_is_absent"), pytest.raises(ImportError):
        importlib.import_module("colorsys")
    assert "this_is_absent" not in sys.modules
    assert importlib.import_module("colorsys").rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)


def test_a_loaded_module_stays_usable() -> None:
    with hidden("json"), pytest.raises(ZeroDivisionError):
        assert importlib.import_module("json").loads("1") == 1
        raise ZeroDivisionError
    assert importlib.import_module("json") is sys.modules["json"]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("workbench.report", "rfc3987_syntax papermill matplotlib pandas"),
        ("workbench.notebook.child", "rfc3987_syntax pyarrow nbconvert matplotlib pandas"),
        ("workbench.notebook", "papermill nbformat nbconvert pandas"),
        ("workbench.index", "papermill nbformat nbconvert pandas"),
    ],
)
def test_rooms_stay_quick_to_import(module: str, heavy: str) -> None:
    script = f"import sys, {module}; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
