"""A drafter written over an earlier one, as after a training that goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from tiny_models import draft_config, draft_tensors, write_model

from workbench.drafter.checkpoint import load_draft, save_draft
from workbench.drafter.model import Eagle3Draft

_WHERE = {"dtype": torch.float32, "device": torch.device("cpu")}
_DRAFTS: list[Eagle3Draft] = []


def prepare(root: Path) -> None:
    config = draft_config()
    model = write_model(root.with_name("model"), config, draft_tensors(config))
    for word in (1.0, 2.0):
        draft = load_draft(model, **_WHERE)
        with torch.no_grad():
            for weight in draft.parameters():
                weight.fill_(word)
        _DRAFTS.append(draft)
    root.mkdir()
    save_draft(_DRAFTS[0], root)


def meanwhile(_: Path) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def act(root: Path) -> None:
    with contextlib.suppress(OSError):
        save_draft(_DRAFTS[1], root)


def read(root: Path) -> None:
    found = {float(value) for weight in load_draft(root, **_WHERE).parameters() for value in weight.detach().unique()}
    assert found in ({1.0}, {2.0}), f"LOST: {found}"


def go_on(root: Path) -> None:
    save_draft(_DRAFTS[1], root)
    read(root)
