"""Every reader for as long as there is time: by coverage where atheris is installed, else by chance."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_fuzz import READERS, fuzz, has

SECONDS = int(60 * float(os.environ.get("WORKBENCH_FUZZ_MINUTES", "0.2")))
ROOT = Path(__file__).parents[2]


def report(line: str) -> None:
    folder = ROOT / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "inputs.txt").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("name", READERS)
def test_a_long_time(name: str) -> None:
    if not has(READERS[name]):
        pytest.skip(f"{READERS[name].needs} is not installed")
    if importlib.util.find_spec("atheris") is None:
        report(f"{name}: {fuzz(READERS[name], 10_000_000, seconds=SECONDS):,} inputs by chance")
        return
    folder = ROOT / "build" / "fuzz" / name
    folder.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("by_coverage.py")
    command = [sys.executable, str(script), name, str(SECONDS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    (inputs,) = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    report(f"{name}: {int(inputs):,} inputs by coverage in {SECONDS} s")
