"""Which campaigns there are, and the way to one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from workbench import show
from workbench.analysis.wording import count
from workbench.campaigns import campaign_folder, campaign_folders
from workbench.errors import RunFolderError
from workbench.explore.campaign import OpenCampaign
from workbench.explore.displays import Displayed
from workbench.explore.picking import Picker
from workbench.store import read_head, run_folders


def list_campaigns() -> CampaignList:
    """The campaigns of this project: recorded ones, and those measured here."""
    return CampaignList()


def open_campaign(name: str | Path) -> OpenCampaign:
    """Read a campaign.

    Parameters
    ----------
    name
        As `list_campaigns` shows it, or the path of a campaign folder.

    Raises
    ------
    SpecError
        When there is none of that name; the nearest one is given.
    RunFolderError
        When the folder is no campaign.
    """
    folder = Path(name)
    is_path = isinstance(name, Path) or (len(folder.parts) > 1 and folder.is_dir())
    return OpenCampaign(folder if is_path else campaign_folder(str(name)))


def pick_campaign(name: str | None = None) -> Picker[OpenCampaign]:
    """Choose a campaign from a list; the first one unless ``name`` is given. ``.chosen`` is the campaign.

    The list is a drop-down menu where ipywidgets is installed, and without it a sentence: the call is the same.
    """
    if name is not None:
        campaign_folder(name)
    found = list_campaigns()
    return Picker("Campaign", found, name or next(iter(found), None), lambda campaign: campaign)


class CampaignList(Displayed, Mapping[str, OpenCampaign]):
    """Campaigns by name: ``campaigns["kimi_k25"]`` opens one. ``df`` has one row a campaign."""

    def __init__(self) -> None:
        self._folders = campaign_folders()

    @property
    def df(self) -> pd.DataFrame:
        rows = [{"campaign": name, **_described(folder)} for name, folder in self._folders.items()]
        return pd.DataFrame(rows, columns=["campaign", "title", "target", "runs"]).astype({"runs": "Int64"})

    def __getitem__(self, name: str) -> OpenCampaign:
        return open_campaign(name)

    def __contains__(self, name: object) -> bool:
        return name in self._folders

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)

    def _show(self) -> None:
        none = "There is none yet: `workbench run quickstart` measures one, `workbench import` makes one of results."
        show.table(self.df, caption=f"{count(len(self), 'campaign')}.", name="campaigns", empty=none)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)


def _described(folder: Path) -> dict[str, object]:
    try:
        info = read_head(folder).info
    except RunFolderError as error:
        return {"title": f"cannot be read: {error.what}"}
    return {"title": info.title, "target": info.target, "runs": len(run_folders(folder))}
