"""Secrets that are planted wherever a user has some, and the search for them."""

from __future__ import annotations

import base64
import gzip
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from live_campaigns import environment

_DOWNLOAD = re.compile(rb"data:[a-z]+/[^,\"']{1,80};base64,([A-Za-z0-9+/=]+)")
ENVIRONMENT = {
    "HF_TOKEN": "plantedenvtoken1",
    "WANDB_API_KEY": "plantedenvkey22",
    "AWS_SECRET_ACCESS_KEY": "planted/env+secret3",
    "DB_PASSWORD": "plantedpass44",
    "SGLANG_ADMIN_SECRET": "plantedadmin55",
    "WORKBENCH_API_KEY": "plantedworkbench66",
    "NGC_APIKEY": "plantedé\\'\"<planted&7",  # written otherwise by Python, JSON, HTML and URLs
}
# What only the server knows and prints.
PRINTED = {
    "hugging face": "hf_PlantedPrintedTokenABCDEFG",
    "openai": "sk-plantedprintedkey0123456789",
    "github": "ghp_plantedprinted0123456789abcdef",
    "url": "https://planteduser:plantedurlpass@models.invalid/m",
    "argument": "server_args=ServerArgs(api_key='plantedargument77', admin_api_key=\"plantedadmin88\")",
    "header": "Authorization: Bearer plantedbearer99aa",
    "basic": "headers={'host': 'h', 'authorization': 'Basic plantedbasic=='}",
    "basic as sent": "> Authorization: Basic cGxhplantedbG==",
    "key header": "headers={'x-api-key': 'plantedkeyheader'}",
    "bytes of headers": "[(b'x-api-key', b'plantedheader11'), (b'host', b'h')]",
    "flag": "python -m sglang.launch_server --api-key plantedflag111 --port 1",
    "flag in a list": "argv=['--admin-api-key', 'plantedflag222', '--port', '1']",
    "flag in JSON": '{"argv": "[\\"--hf-token\\", \\"plantedflag333\\"]"}',
    "query": "https://h/x?token=plantedtoken1&api_key=plantedkey22",
    "query in HTML": "https://h/x?a=b&amp;api_key=plantedkey22",
    "nvidia": "nvapi-plantedxyz12",
    "gitlab": "glpat-plantedxyz12",
    "variable": 'OPENAI_API_KEY="planted variable"',
    "variable alone": "NGC_API_KEY=plantedngc",
    "escaped quotes": r"""ServerArgs(api_key='a"a\\q\'planted88888')""",
    "escaped quotes in JSON": r"""{"m": "{\"api_key\": \"plan\\\"planted\\\\\", 1}"}""",
}
LAUNCH = (
    "import os, runpy, sys\n"
    "for name in {names!r}: sys.stderr.write(name + '=' + os.environ.get(name, '?') + chr(10))\n"
    "for text in {printed!r}: sys.stderr.write(text + chr(10))\n"
    "sys.stderr.flush()\n"
    "sys.argv[0] = {script!r}\n"
    "runpy.run_path({script!r}, run_name='__main__')\n"
)


def found(folder: Path) -> Iterator[str]:
    """Files with anything planted in them; packed ones unpacked, and the downloads in pages."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            for data in _contents(path.read_bytes()):
                at = data.lower().find(b"planted")
                if at >= 0:
                    yield f"{path.relative_to(folder)}: {data[max(0, at - 60) : at + 60]!r}"


def _contents(data: bytes) -> Iterator[bytes]:
    yield data
    if data[:2] == b"\x1f\x8b":
        yield from _contents(gzip.decompress(data))
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from _contents(archive.read(name))
    for download in _DOWNLOAD.finditer(data):
        yield base64.b64decode(download[1])


def workbench(project: Path, *arguments: str, **options: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=project,
        env={**os.environ, **environment(project, **options), **ENVIRONMENT},
    )
    return done.returncode, done.stdout + done.stderr
