"""How reading and reporting grow with the number of runs: 100, 1,000, 10,000 synthetic ones. `make bench`.

``WORKBENCH_BENCH_RUNS=100,1000`` leaves out the largest, which takes long to read for the first time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import change_run, make_campaign, runs_of

from workbench.paths import ROOT_ENV, notebooks_dir, reference_points_csv

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7200)]

SIZES = [int(number) for number in os.environ.get("WORKBENCH_BENCH_RUNS", "100,1000,10000").split(",")]
TITLE = "Growth with the number of runs"
PAGE_LIMIT_BYTES = 3_000_000
REPORT_LIMIT_S = 60.0

# The peak is that of the process or of its largest child, since each of them was started.
MEASURED = """
import json, resource, sys, time
from pathlib import Path
from workbench.{module}

def peak():
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(int(own.split()[1]), children) / 1024

def cpu():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

if __name__ == "__main__":
    began, before = time.perf_counter(), cpu()
    {code}
    seconds, used = time.perf_counter() - began, cpu() - before
    print(json.dumps({{"wall_s": seconds, "processor_s": used, "peak_mib": peak(), "runs": runs}}))
"""
LOAD = ("table import load_tables", "runs = len(load_tables(Path(sys.argv[1]), workers=2).runs)")
FRAMES = (
    "table import load_tables",
    "tables = load_tables(Path(sys.argv[1]), workers=2); runs = len(tables.runs); tables.requests; tables.settings",
)
REPORT = (
    "reports import build",
    "made = build(campaigns=[Path(sys.argv[1]).name], notebooks=None, workers=2, say=lambda line: None)\n"
    "    assert made.all_ok, made.summary\n    runs = 0",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of its own, with the notebooks of this one."""
    folder = tmp_path_factory.mktemp("scale")
    shutil.copytree(notebooks_dir(), folder / "notebooks")
    (folder / "data" / "runs").mkdir(parents=True)
    shutil.copy(reference_points_csv(), folder / "data")
    return folder


def measured(what: tuple[str, str], campaign: Path, root: Path) -> dict[str, float]:
    script = root / "measured.py"
    script.write_text(MEASURED.format(module=what[0], code=what[1]))
    answer = subprocess.run(
        [sys.executable, str(script), str(campaign)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {ROOT_ENV: str(root)},
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    figures: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    sys.stdout.write("\n" + json.dumps({"benchmark": "scale", "campaign": campaign.name, "what": what[0], **figures}))
    return figures


def settle(root: Path) -> None:
    """Files that changed just now are not trusted to stay: let them be older than that."""
    for path in (root / "data").rglob("*.json"):
        then = path.stat().st_mtime - 60
        os.utime(path, (then, then))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("num_runs", SIZES)
def test_growth(num_runs: int, root: Path, bench) -> None:  # type: ignore[no-untyped-def]
    campaign = make_campaign(root / "data" / "runs" / f"copies{num_runs}", num_runs)
    settle(root)
    first = measured(LOAD, campaign, root)
    again = measured(LOAD, campaign, root)
    frames = measured(FRAMES, campaign, root)
    report_first = measured(REPORT, campaign, root)
    for run in runs_of(campaign)[:: max(1, 100)][: max(1, num_runs // 100)]:
        change_run(run)
        then = (run / "requests.jsonl.gz").stat().st_mtime - 60
        os.utime(run / "requests.jsonl.gz", (then, then))
    changed = measured(LOAD, campaign, root)
    report = measured(REPORT, campaign, root)
    pages = {path.name: path.stat().st_size for path in (root / "reports").glob(f"{campaign.name}-*.html")}
    for what, figures in (
        ("tables, first time", first),
        ("tables, nothing changed", again),
        ("the same with all request and setting rows in memory", frames),
        ("tables, 1 % changed", changed),
        ("report, all pages, first time", report_first),
        ("report, all pages, 1 % changed", report),
    ):
        bench.add(
            "scale",
            TITLE,
            runs=num_runs,
            what=what,
            wall_s=figures["wall_s"],
            processor_s=figures["processor_s"],
            peak_MiB=figures["peak_mib"],
        )
    bench.add(
        "scale", TITLE, runs=num_runs, what=f"largest of {len(pages)} pages (kB)", wall_s=max(pages.values()) / 1e3,
        processor_s="", peak_MiB="",
    )  # fmt: skip
    assert max(pages.values()) < PAGE_LIMIT_BYTES
    assert report["wall_s"] < REPORT_LIMIT_S
