"""Which campaigns there are. One is named by its folder, or ``runs/NAME`` where recorded data has that name too."""

from __future__ import annotations

import difflib
from pathlib import Path

from workbench.errors import SpecError
from workbench.paths import recorded_dir, runs_dir
from workbench.store import find_campaigns


def campaign_folders() -> dict[str, Path]:
    """Every campaign's name and folder: recorded ones first, then those measured here."""
    named: dict[str, Path] = {}
    for root in (recorded_dir(), runs_dir()):
        for folder in find_campaigns(root):
            named[folder.name if folder.name not in named else f"{root.name}/{folder.name}"] = folder
    return named


def campaigns_named(name: str) -> list[Path]:
    """The folder of a campaign, and where recorded data has its name too, that of the one measured here.

    Raises
    ------
    SpecError
        When there is none of that name.
    """
    here = campaign_folders().get(f"{runs_dir().name}/{name}")
    return [campaign_folder(name), *([here] if here is not None else [])]


def campaign_folder(name: str) -> Path:
    """The folder of a campaign.

    Raises
    ------
    SpecError
        When there is none of that name; the nearest name is given.
    """
    folders = campaign_folders()
    if name in folders:
        return folders[name]
    near = difflib.get_close_matches(name, folders, n=1, cutoff=0.55)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(folders) or 'none'}"
    raise SpecError(f"no campaign {name!r}", where=f"{recorded_dir()} and {runs_dir()}", next_step=hint)
