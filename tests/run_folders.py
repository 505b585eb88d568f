"""Small campaign folders written by hand, file by file, so that each can be broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def write_text(path: Path, content: object) -> Path:
    """A file with text as it is, bytes as they are, anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def campaign_info(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "title": f"Campaign {name}", "target": "T", "machine": "one GPU", **more}


def write_campaign(folder: Path, *, drafters: object = None, **more: object) -> Path:
    write_text(folder / "campaign.json", campaign_info(folder.name, **more))
    if drafters is not None:
        write_text(folder / "drafters.json", drafters)
    return folder


def run_spec(folder: Path, **more: object) -> dict[str, object]:
    return {
        "campaign": folder.parent.name,
        "run_id": folder.name,
        "server_id": "server",
        "target": {"name": "T"},
        "workload": {"prompt_set": "p", "max_concurrency": 1},
        **more,
    }


SPECULATIVE: dict[str, object] = {
    "drafter": "d",
    "spec_decode": {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    },
}


def write_run(
    folder: Path,
    *,
    status: dict[str, Any] | None = None,
    requests: object = None,
    log: bytes | None = None,
    files: dict[str, object] | None = None,
    **spec: object,
) -> Path:
    """A run of status ok. ``files`` replace or add to what is written, ``None`` leaves one out."""
    contents: dict[str, object] = {
        "spec.json": run_spec(folder, **spec),
        "provenance.json": {"origin": "measured", "source": "a test"},
        "requests.jsonl": json_lines(requests) if isinstance(requests, list) else requests,
        "server.log": log,
        "status.json": {"status": "ok", **(status or {})},
        **(files or {}),
    }
    for name, content in contents.items():
        if content is not None:
            write_text(folder / name, content)
    return folder


def json_lines(records: list[object]) -> str:
    return "".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records)


def cut_gzip(text: bytes) -> bytes:
    """A gzip file that lost its end: about half of its text can be read."""
    packed = gzip.compress(text, mtime=0)
    return packed[: len(packed) // 2]
