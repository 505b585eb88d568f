from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_folders import SPECULATIVE, write_campaign, write_run

from workbench.explore import OpenCampaign, open_campaign
from workbench.paths import ROOT_ENV

LOG = b"""\
[2026-01-05 10:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE3')
[2026-01-05 10:00:01] Decode batch, #running-req: 1, #token: 246, token usage: 0.00, accept len: 2.08, \
accept rate: 0.41, cuda graph: True, gen throughput (token/s): 52.79, #queue-req: 0
[2026-01-05 10:00:02] Decode batch, #running-req: 1, #token: 325, token usage: 0.00, accept len: 1.98, \
accept rate: 0.40, cuda graph: True, gen throughput (token/s): 51.00, #queue-req: 0
"""


def reported(speed: float, accept_length: float | None = None) -> dict[str, object]:
    length = None if accept_length is None else {"low": accept_length, "high": accept_length}
    return {
        "source": "a test",
        "output_tok_per_s": {"low": speed, "high": speed},
        **({"accept_length": length} if length else {}),
    }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the campaigns ``a`` (a baseline, two speculative runs, a log) and ``b`` (a baseline)."""
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    (tmp_path / "notebooks").mkdir()
    a = write_campaign(tmp_path / "data" / "recorded" / "a", question="Does it pay?", drafters=[{"name": "d"}])
    write_run(a / "base", server_id="plain", files={"reported.json": reported(100.0)})
    write_run(a / "fast", **SPECULATIVE, log=LOG, server_id="s-fast", files={"reported.json": reported(120.0, 2.5)})
    write_run(a / "slow", **SPECULATIVE, server_id="s-slow", files={"reported.json": reported(80.0, 1.2)})
    write_run(
        a / "other",
        workload={"prompt_set": "q", "max_concurrency": 8},
        server_id="plain",
        files={"reported.json": reported(400.0)},
    )
    write_run(write_campaign(tmp_path / "data" / "recorded" / "b") / "base")
    shutil.copy(Path(__file__).parents[2] / "data" / "reference_points.csv", tmp_path / "data")
    return tmp_path


@pytest.fixture
def opened(project: Path) -> OpenCampaign:
    return open_campaign("a")
