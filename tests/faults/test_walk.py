"""Every change that a writer makes to its folder, made to fail in turn, see `walk`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from injecting import Tally

WALK = Path(__file__).with_name("walk.py")
STOPS, FULL = "stop,power", "full,quota"
SLOW = [
    *(("run", "power"), ("run", FULL), ("force", STOPS), ("force", FULL)),
    *(("arrived", "unlucky"), ("arrived", FULL)),
    *(("shelf", "power"), ("shelf", FULL), ("pages", "power"), ("pages", FULL)),
    *(("training", "power"), ("training", FULL)),
    *(("draft", "power"), ("draft", FULL)),
]


@pytest.mark.parametrize(
    ("scenario", "kinds"),
    [*(("corpus", kinds) for kinds in (STOPS, FULL)), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)],
)
def test_whatever_is_not_written_nothing_passes_as_whole(
    tmp_path: Path, scenario: str, kinds: str, tally: Tally
) -> None:
    """The process stops, the power goes, the disk or the quota is full; the next process reads it, and goes on."""
    if scenario in ("training", "draft"):
        pytest.importorskip("torch")
    if sys.platform != "linux":
        pytest.skip("names of open files come from /proc")
    call = [sys.executable, str(WALK), scenario, kinds, str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["faults"] == []
    tally.injected = tally.survived = found["points"]
    tally.lost = found["lost"]
