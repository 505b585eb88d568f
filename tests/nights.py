"""A small campaign that was measured on several nights: what is in place, and what each night put aside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from run_folders import SPECULATIVE, write_campaign, write_run

ARMS: Mapping[str, dict[str, object]] = {"baseline-c1-aaaaaa": {}, "eagle3-c1-bbbbbb": SPECULATIVE}
PROMPTS, REPEATS, TOKENS = 12, 3, 101


def requests(seconds: float, *, steps: int | None) -> list[object]:
    """Prompts of one length; the passes of a night lie within 0.4 % of each other, prompts within 10 %."""
    rows: list[object] = []
    for repeat in range(REPEATS):
        for prompt in range(PROMPTS):
            took = seconds * (1 + 0.01 * prompt) * (1 + 0.002 * (repeat - 1))
            row = {"prompt_index": prompt, "repeat": repeat, "completion_tokens": TOKENS, "ttft_s": 0.1}
            row["latency_s"] = round(0.1 + took, 6)
            if steps is not None:
                row["spec_verify_ct"] = steps + prompt % 3
            rows.append(row)
    return rows


def day(night: int) -> str:
    """Nights from the first of January 2026 on."""
    return (date(2026, 1, 1) + timedelta(night - 1)).isoformat()


def measure(
    campaign: Path,
    night: int,
    *,
    seconds: Mapping[str, float] | float = 1.0,
    steps: int = 50,
    provenance: dict[str, Any] | None = None,
    status: str = "ok",
) -> Path:
    """One more night: what was in place is put aside, as `workbench run --force` does."""
    write_campaign(campaign)
    for run_id, spec in ARMS.items():
        path = campaign / run_id
        if path.exists():
            (campaign / "_kept").mkdir(exist_ok=True)
            shutil.move(path, campaign / "_kept" / f"{run_id}-{day(night).replace('-', '')}T010101000000")
        took = seconds if isinstance(seconds, float) else seconds[run_id.partition("-")[0]]
        said = {"origin": "measured", "source": "a test", "recorded_at": f"{day(night)}T00:00:00+00:00"}
        files = {"provenance.json": {**said, **(provenance or {})}}
        rows = requests(took, steps=steps if spec else None)
        state = {"status": status, **({"reason": "it died"} if status != "ok" else {})}
        write_run(path, requests=rows, status=state, files=files, label=run_id.rpartition("-")[0], **spec)
    return campaign


def put_aside_attempt(campaign: Path, night: int) -> None:
    """An attempt that failed, after which the finished run was brought back to its place."""
    for run_id in ARMS:
        kept = campaign / "_kept" / f"{run_id}-202601{night:02d}T020202000000"
        shutil.copytree(campaign / run_id, kept)
        (kept / "status.json").write_text(json.dumps({"status": "failed", "reason": "out of memory"}))
        said = json.loads((kept / "provenance.json").read_text())
        (kept / "provenance.json").write_text(
            json.dumps({**said, "recorded_at": f"2026-01-{night:02d}T02:00:00+00:00"})
        )
