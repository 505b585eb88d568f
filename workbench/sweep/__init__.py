"""A campaign file and what it expands to: server starts with their runs, merged and refused points.

A campaign is YAML. Every block of ``sweep`` is the product of its lists; blocks are added up. A baseline is added for
every server setting that is used, first and, unless ``baseline_again`` is off, last (A-B-A). Loads share a start.
"""

from workbench.sweep.campaign_file import UNNAMED, CampaignSpec, SweepBlock
from workbench.sweep.plan import LeftOut, Plan, Start, expand, named, running_limit, with_control
from workbench.sweep.reading import campaign_names, find_campaign, parse_campaign, read_campaign_file

__all__ = [
    "UNNAMED",
    "CampaignSpec",
    "LeftOut",
    "Plan",
    "Start",
    "SweepBlock",
    "campaign_names",
    "expand",
    "find_campaign",
    "named",
    "parse_campaign",
    "read_campaign_file",
    "running_limit",
    "with_control",
]
