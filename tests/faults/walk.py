"""Every change that something makes to its folder, made to fail in turn: ``python walk.py SCENARIO KINDS FOLDER``.

Several kinds, with commas between them, take turns.

For each point a fresh copy of the folder is made, the work is done in a forked process that fails there, and two others
look at what is left and go on. Prints JSON: points, what went wrong, finished runs that were lost.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "training")]

from cutting import NONE, STOPPED, STOPS, Cut  # noqa: E402

from workbench.errors import WorkbenchError  # noqa: E402
from workbench.paths import ROOT_ENV  # noqa: E402

REFUSED = 3


def main(scenario: str, kinds: list[str], folder: Path) -> dict[str, object]:
    doing = import_module(f"scenarios.{scenario}")
    base = folder / "base"
    at_home(base)
    doing.prepare(base)
    with doing.meanwhile(folder):
        changes = whole_walk(doing, base, folder)
        turns = zip(range(1, len(changes) + 1), itertools.cycle(kinds))
        points = [(at, kind) for at, kind in turns if kind in STOPS or at < len(changes)]  # the last is the end
        faults = [fault for at, kind in points for fault in one_point(doing, kind, at, base, folder)]
    lost = sum("LOST" in fault for fault in faults)
    return {"points": len(points), "faults": faults, "lost": lost, "changes": changes}


def whole_walk(doing: ModuleType, base: Path, folder: Path) -> list[str]:
    """What is changed where nothing fails."""
    root = copy(base, folder / "whole")
    told = folder / "told.json"

    def act() -> None:
        cut = Cut(root, NONE, 0)
        cut.install()
        doing.act(root)
        cut.end()
        told.write_text(json.dumps(cut.told))

    assert in_a_fork(act, root) == (0, "")
    changes = json.loads(told.read_text())
    assert len(changes) > 1, changes
    return changes


def one_point(doing: ModuleType, kind: str, at: int, base: Path, folder: Path) -> list[str]:
    """What went wrong where the ``at``-th change failed."""
    root = copy(base, folder / "points" / str(at))

    def act() -> None:
        cut = Cut(root, kind, at)
        cut.install()
        doing.act(root)
        if kind in STOPS:
            cut.end()

    code, said = in_a_fork(act, root)
    faults = [] if code in (0, STOPPED, REFUSED) else [f"doing it: {said}"]
    for name, look in (("reading it", doing.read), ("going on", doing.go_on)):
        code, said = in_a_fork(lambda look=look: look(root), root)
        faults += [f"{name}: {said}"] if code != 0 else []
    shutil.rmtree(root)
    return [f"{kind} at {at}: {fault}" for fault in faults]


def copy(base: Path, place: Path) -> Path:
    """With the times of its files: tables that are kept go by them."""
    return Path(shutil.copytree(base, place))


def in_a_fork(act: Callable[[], None], root: Path) -> tuple[int, str]:
    """Exit code and last words of a process that does something in a project."""
    words = root.with_name(f"{root.name}.words")
    words.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            at_home(root)
            act()
            code = 0
        except BaseException as error:  # noqa: BLE001 - told, and never back into the walk
            code = REFUSED if isinstance(error, WorkbenchError) else 1
            words.write_text(traceback.format_exc()[-3000:])
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, words.read_text() if words.exists() else ""


def at_home(root: Path) -> None:
    os.environ |= {ROOT_ENV: str(root), "XDG_STATE_HOME": f"{root}.state"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], sys.argv[2].split(","), Path(sys.argv[3]).resolve())) + "\n")
