"""`workbench run`: the run notebook through papermill, its progress shown as it comes, the executed copy kept."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench import live
from workbench.notebook import run_notebook
from workbench.paths import notebooks_dir, runs_dir
from workbench.spec import RunState
from workbench.store import read_campaign
from workbench.sweep import expand, find_campaign

NOTEBOOK = "10_run_campaign.ipynb"
LIMIT_S = 7 * 24 * 3600.0
_POLL_S = 0.3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a campaign, in a sentence, and where the executed notebook is."""

    sentence: str
    notebook: Path
    all_ok: bool


def dry_run(campaign: str, settings: Sequence[str]) -> str:
    """The plan of a campaign as text; nothing is started."""
    return live.dry_run(expand(find_campaign(campaign, settings)))


def run(
    campaign: str, settings: Sequence[str], *, force: bool, allow_refused: bool, say: Callable[[str], None]
) -> Outcome:
    """Execute the run notebook; the campaign file is checked before a kernel starts.

    Raises
    ------
    SpecError
        When the campaign file is invalid.
    """
    spec = find_campaign(campaign, settings)
    folder = runs_dir() / spec.name
    output = folder / "_notebooks" / NOTEBOOK
    output.parent.mkdir(parents=True, exist_ok=True)
    parameters = {
        "campaign": campaign,
        "settings": list(settings),
        "force": force,
        "allow_refused": allow_refused,
    }
    with _followed(live.progress_file(spec.name), say):
        done = run_notebook(notebooks_dir() / NOTEBOOK, output, parameters, timeout_s=LIMIT_S, save_each_cell=True)
    if done.status is not RunState.OK:
        return Outcome(f"The run notebook {done.status}: {done.reason or 'no reason given'}", output, False)
    states = [run.status.status for run in read_campaign(folder).runs]
    good = sum(state is RunState.OK for state in states)
    return Outcome(f"{good} of {len(states)} runs are measured.", output, good == len(states))


@contextlib.contextmanager
def _followed(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Pass on the lines that another process appends to ``path`` from now on."""
    stop = threading.Event()
    path.unlink(missing_ok=True)

    def follow() -> None:
        position = 0
        while True:
            last = stop.is_set()
            with contextlib.suppress(OSError):
                text = path.read_text(encoding="utf-8", errors="replace")
                for line in text[position:].splitlines():
                    say(line)
                position = len(text)
            if last:
                return
            time.sleep(_POLL_S)

    thread = threading.Thread(target=follow, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
