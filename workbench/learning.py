"""What the training notebook does besides showing: it trains a drafter, or finds the one that is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.errors import UsageError
from workbench.paths import under_root
from workbench.trained import RECORD


def trained(config: str, settings: Sequence[str] = ()) -> Path:
    """The folder of a finished drafter: ``config`` itself, or what training by that file makes; a run goes on.

    Raises
    ------
    WorkbenchError
        When neither a finished folder nor a training file is named, or the training cannot be done.
    """
    path = Path(under_root(config))
    if path.is_dir():
        if not (path / RECORD).is_file():
            raise UsageError("holds no finished drafter", where=path, next_step="name its training file instead")
        return path
    from workbench.training.config import read_config
    from workbench.training.needs import check_torch

    asked = read_config(path, settings)
    folder = Path(asked.out)
    if (folder / RECORD).is_file():
        return folder
    check_torch()
    from workbench.training.train import train

    return train(asked, resume=True, say=_printed("\n"), overwrite=_printed("\n"))


def _printed(end: str) -> Callable[[str], None]:
    def say(text: str) -> None:
        sys.stdout.write(text + end)
        sys.stdout.flush()

    return say
