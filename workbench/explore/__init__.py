"""Campaigns and logs for an interactive session: one-line calls, objects with rich and with plain displays.

Everything shown comes from the rooms that the pages are made of; see docs/exploring.md for every call.
"""

from workbench.explore.campaign import OpenCampaign
from workbench.explore.catalogue import CampaignList, list_campaigns, open_campaign, pick_campaign
from workbench.explore.comparison import Comparison
from workbench.explore.logs import LogList, OpenLog, open_log
from workbench.explore.picking import Picker
from workbench.explore.runs import OneRun, RunTable

__all__ = [
    "CampaignList",
    "Comparison",
    "LogList",
    "OneRun",
    "OpenCampaign",
    "OpenLog",
    "Picker",
    "RunTable",
    "list_campaigns",
    "open_campaign",
    "open_log",
    "pick_campaign",
]
