"""A finished run that is measured again with ``--force``: what there was is there until the new one is whole."""

from __future__ import annotations

from pathlib import Path

from scenarios.run import LESS, meanwhile, prepare, run_campaign, whole

__all__ = ["act", "go_on", "meanwhile", "prepare", "read"]
ONE = (LESS, "only=baseline-default")


def act(root: Path) -> None:
    run_campaign(*ONE, force=True)


def read(root: Path) -> None:
    whole(root)


def go_on(root: Path) -> None:
    (ended,) = run_campaign(*ONE)
    assert ended.reused, "LOST: neither the old one nor the new one is there"
    assert len(whole(root)) == 1
