"""Analysis and reporting workbench for EAGLE-3 speculative decoding on SGLang.

For notebooks and scripts: `list_campaigns`, `open_campaign`, `open_log` and `pick_campaign`, see docs/exploring.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.explore import list_campaigns, open_campaign, open_log, pick_campaign

__version__ = "0.1.0"
__all__ = ["__version__", "list_campaigns", "open_campaign", "open_log", "pick_campaign"]


def __getattr__(name: str) -> object:
    """What reads and draws is imported at its first use, so that importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module("workbench.explore"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
