"""A campaign measured: starts in order, one run folder a run whatever happens, resumed by content.

The main flow is `run_campaign`. Servers come from ``launch``, loads from ``load``; what is left behind are run folders.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from workbench.checkpoint import read_checkpoint
from workbench.errors import CheckpointError, RunFolderError, WorkbenchError
from workbench.launch import Attached, LaunchError, Server, claim, sample_gpus, serve_start
from workbench.load import Measured, measure_run
from workbench.paths import runs_dir
from workbench.preflight import CheckResult, Severity, check_draft
from workbench.prompts import PromptSet, prompt_set
from workbench.provenance import measured_on
from workbench.spec import CampaignInfo, Origin, Provenance, RunSpec, RunState, RunStatus
from workbench.store import SERVERS, read_run, write_atomic, write_json, write_run
from workbench.sweep import CampaignSpec, Plan, Start, expand

Say = Callable[[str], None]
