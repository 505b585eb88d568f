"""The package's own promises: what it needs, what the GPU node needs, and what importing it costs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
HEAVY = {"pandas", "numpy", "scipy", "matplotlib", "seaborn", "torch", "papermill", "nbconvert", "pydantic", "pyarrow"}
# What serves, and so stands in environment.yml alone.
SERVING = {"sglang": "==0.5.14", "torch": "=="}


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@cache
def conda() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    return read


def from_pip() -> list[str]:
    (listed,) = [item["pip"] for item in conda()["dependencies"] if isinstance(item, dict)]
    return listed


def name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None, requirement
    return match[0].lower().replace("_", "-")


def test_the_gpu_node_gets_what_the_package_asks_for_to_the_letter() -> None:
    asked = [*project()["dependencies"], *project()["optional-dependencies"].get("gpu", [])]
    there = [requirement for requirement in from_pip() if name(requirement) not in SERVING]
    assert sorted(there) == sorted(asked)
    assert len({name(requirement) for requirement in from_pip()}) == len(from_pip())


def test_the_gpu_node_serves_with_the_version_that_was_measured() -> None:
    pinned = {name(requirement): requirement for requirement in from_pip() if name(requirement) in SERVING}
    assert set(pinned) == set(SERVING)
    for package, pin in SERVING.items():
        assert pinned[package].startswith(f"{package}{pin}")


def test_the_python_of_the_gpu_node_is_one_that_the_package_supports() -> None:
    assert project()["requires-python"] == ">=3.11,<3.14"
    (python,) = [item for item in conda()["dependencies"] if isinstance(item, str) and item.startswith("python")]
    assert python in ("python=3.11", "python=3.12", "python=3.13")
    assert (3, 11) <= sys.version_info[:2] <= (3, 13)


def test_the_base_set_brings_no_torch_and_no_engine() -> None:
    forbidden = {"torch", "sglang", "vllm", "transformers", "accelerate", "flashinfer", "triton", "ray"}
    assert forbidden.isdisjoint(map(name, project()["dependencies"]))


def test_the_base_set_reads_reports_and_opens_jupyterlab() -> None:
    assert {"jupyterlab", "papermill", "nbconvert", "pandas", "matplotlib", "seaborn", "scipy"} <= set(
        map(name, project()["dependencies"])
    )


def in_a_new_process(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_importing_the_package_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, time\n"
        "start = time.process_time()\n"
        "import workbench, workbench.cli\n"
        "print(time.process_time() - start, *sys.modules)"
    )
    seconds, *modules = in_a_new_process(code)
    assert HEAVY.isdisjoint(modules)
    # Processor time, so that other work on the machine does not count: 0.03 s. The bound leaves no room for pandas.
    assert float(seconds) < 0.3


def test_no_room_that_measures_or_reads_loads_torch_or_an_engine() -> None:
    code = (
        "import sys\n"
        "import workbench.diagnose, workbench.page, workbench.reports, workbench.table.parse_logs\n"
        "print(*sys.modules)"
    )
    loaded = set(in_a_new_process(code))
    assert {"torch", "sglang", "vllm", "transformers", "papermill", "nbconvert", "matplotlib"}.isdisjoint(loaded)
    assert "pandas" in loaded
