"""Changed inputs that reach new lines: ``python by_coverage.py READER SECONDS FOLDER`` with atheris.

An input that breaks the reader is left in FOLDER as ``crash-...``; the exit code is then not 0.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["workbench"]):
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    from readers import readers

    from workbench.errors import WorkbenchError

READERS = {reader.name: reader for reader in readers()}


def main(name: str, seconds: str, folder: str) -> None:
    reader, corpus = READERS[name], Path(folder) / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(reader.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)

    def one(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                reader.read(data, Path(scratch))
            except WorkbenchError:
                return

    limits = [
        f"-max_total_time={seconds}",
        "-timeout=30",
        "-rss_limit_mb=2500",
        "-max_len=65536",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={folder}/", *limits], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
