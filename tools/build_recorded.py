#!/usr/bin/env python3
"""Write the committed campaigns of data/recorded from their raw material.

    python tools/build_recorded.py RAW [--out DIR] [--only NAME ...]

RAW is a folder with the three logs ``h200_sglang0514_*.log`` and a folder ``h200_first_trial`` (requests.jsonl,
training.json, logs/*.log.gz). ``kimi_k25`` needs no raw material: its figures were written down by hand and stand in
tools/recorded/kimi_k25.py. The same input gives the same bytes. A campaign folder that exists is replaced.

Every span of a log is checked while it is written: the number of finished requests, the running requests and, where the
decode steps are known, the number of decode lines must agree with the records.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from recorded import h200_first_trial, h200_smollm2, kimi_k25

from workbench.paths import recorded_dir

FROM_RAW: dict[str, Callable[[Path, Path], None]] = {
    h200_smollm2.NAME: h200_smollm2.build,
    h200_first_trial.NAME: lambda folder, raw: h200_first_trial.build(folder, raw / h200_first_trial.NAME),
}
NAMES = (kimi_k25.NAME, *FROM_RAW)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the committed campaigns from their raw material.")
    parser.add_argument("raw", type=Path, nargs="?", help="folder of raw material (not needed for kimi_k25)")
    parser.add_argument("--out", type=Path, default=recorded_dir(), help="default: data/recorded")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    arguments = parser.parse_args()
    if arguments.raw is None and set(arguments.only) & set(FROM_RAW):
        parser.error("these campaigns are made from raw material: name its folder")
    for name in arguments.only:
        folder = arguments.out / name
        if (folder / "campaign.json").exists():
            shutil.rmtree(folder)
        if name in FROM_RAW:
            FROM_RAW[name](folder, arguments.raw)
        else:
            kimi_k25.build(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
