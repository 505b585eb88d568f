"""The command ``workbench specforge``: its arguments, and what they call."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workbench.terminal import Lines, say


def add_command(commands: Any) -> None:
    """Add it to the subparsers of the command line."""
    parser = commands.add_parser("specforge", help="write what SpecForge trains from, read what it leaves")
    parts = parser.add_subparsers(required=True, metavar="write|read")
    write = parts.add_parser("write", help="run.yaml, draft config, features or ids, and the commands to run")
    write.add_argument("config", type=Path, metavar="CONFIG", help="YAML file, see docs/specforge.md")
    write.add_argument("--out", type=Path, required=True, metavar="DIR", help="empty folder, or one to go on with")
    write.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key; may be repeated")
    write.add_argument("--quiet", action="store_true", help="say nothing until the end")
    write.set_defaults(call=_write)
    read = parts.add_parser("read", help="its logs and checkpoints as the record of a training")
    read.add_argument("run", type=Path, metavar="RUN_DIR", help="folder of run.yaml, or its output_dir")
    read.add_argument("--as", dest="name", metavar="NAME", help="call the drafter so")
    read.add_argument("--out", type=Path, metavar="DRAFTER_DIR", help="exported drafter; the record goes beside it")
    read.add_argument("--config", type=Path, metavar="FILE", help="run.yaml, where it lies elsewhere")
    read.add_argument("--log", type=Path, action="append", default=[], metavar="FILE", help="console log, elsewhere")
    read.add_argument("--specforge-version", metavar="V", help="the version that ran, where the folder is not ours")
    read.set_defaults(call=_read)


def _write(arguments: argparse.Namespace) -> int:
    from workbench.preflight.text import render_result
    from workbench.specforge.order import read_order
    from workbench.specforge.write import write

    order = read_order(arguments.config, arguments.set)
    written = write(order, arguments.out, Lines(quiet=arguments.quiet))
    say("\n".join([*written.lines, *map(render_result, written.findings)]))
    return 0


def _read(arguments: argparse.Namespace) -> int:
    from workbench.specforge import read, run_folder

    left = run_folder.look(arguments.run, config=arguments.config, logs=arguments.log)
    record = read.make_record(left, name=arguments.name, version=arguments.specforge_version)
    if arguments.out is not None:
        read.save(record, left, arguments.out)
    say(read.text(record, left, arguments.out))
    return 0
