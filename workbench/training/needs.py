"""What training and offline evaluation need installed."""

from __future__ import annotations

import importlib.util

from workbench.errors import MissingToolError


def check_torch() -> None:
    """Refuse to begin without PyTorch.

    Raises
    ------
    MissingToolError
        With the command that installs it.
    """
    missing = [name for name in ("torch", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingToolError(
            f"training and evaluating drafters needs {' and '.join(missing)}",
            next_step='pip install "eagle3-workbench[reference]"',
        )
