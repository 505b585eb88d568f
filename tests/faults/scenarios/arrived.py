"""A run that was measured at another node and comes in pieces, its log first."""

from __future__ import annotations

import shutil
from pathlib import Path

from live_campaigns import run_folder

from scenarios.run import LESS, meanwhile, read, run_campaign, running_server, states, whole
from scenarios.run import prepare as prepare_baseline
from workbench.cluster.parcels import Arrivals, Piece
from workbench.measure import plan_of
from workbench.sweep import find_campaign

__all__ = ["act", "go_on", "meanwhile", "prepare", "read"]


def prepare(root: Path) -> None:
    prepare_baseline(root)
    with running_server(root.with_name("second.log")):
        run_campaign(LESS)
    (root / "node").mkdir()
    made, logs = run_folder(root, "eagle3"), root / "data/runs/small/_servers/eagle3-d-s3-k1-n4"
    shutil.move(made, root / "node" / made.name)
    shutil.move(logs, root / "node" / "_servers" / logs.name)


def act(root: Path) -> None:
    node = root / "node"
    _, start = plan_of(find_campaign("small", [LESS])).starts
    arrivals = Arrivals(root / "data" / "runs" / "small", start)
    files = sorted((path for path in node.rglob("*") if path.is_file()), key=lambda path: path.name == "status.json")
    for path in files:
        data = path.read_bytes()
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            arrivals.take(Piece(path.relative_to(node).as_posix(), piece))
    (run,) = start.runs
    arrivals.put_in_place(run.run_id, node="n1", places=1)


def go_on(root: Path) -> None:
    """What has not come whole is measured again."""
    assert run_campaign(LESS)[0].reused, "LOST: the baseline is measured again"
    assert set(states(root).values()) == {"ok"} and len(whole(root)) == 2
    read(root)
