"""Stands as the launch prefix of a campaign: the scripted server takes the engine's place, with its command line.

``$SCRIPTED`` is JSON: options of the scripted server for ``baseline``, ``speculative`` and ``all`` starts; ``first``
are those of the first start only, told by ``$SCRIPTED_COUNT``, a file that gets a line a start.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    arguments = sys.argv[sys.argv.index("--model-path") :]
    options: dict[str, list[str]] = json.loads(os.environ.get("SCRIPTED", "{}"))
    counted = Path(os.environ["SCRIPTED_COUNT"])
    starts = counted.read_text().count("\n") if counted.exists() else 0
    with counted.open("a") as file:
        file.write(" ".join(arguments) + "\n")
    role = "speculative" if "--speculative-algorithm" in arguments else "baseline"
    wanted = [*options.get("all", []), *options.get(role, []), *(options.get("first", []) if starts == 0 else [])]
    server = str(Path(__file__).with_name("scripted_server.py"))
    os.execv(sys.executable, [sys.executable, "-E", server, *arguments, *wanted])


main()
