"""``workbench specforge write``: a folder that SpecForge trains from, and a manifest of what is in it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workbench.checkpoint import Checkpoint, read_checkpoint
from workbench.errors import UsageError
from workbench.files import replacing
from workbench.paths import under_root
from workbench.preflight.result import CheckResult
from workbench.specforge import run_yaml
from workbench.specforge.draft import capture_ids, draft_config, target_class
from workbench.specforge.order import Order
from workbench.specforge.samples import Data, choose, eos_ids, loss_mask, steps_of, write_ids
from workbench.specforge.target import EMBEDDING, HEAD, embedding_key, head_key, index_fault, linked
from workbench.specforge.traps import MANIFEST, findings, read_run
from workbench.specforge.validate import keys_of
from workbench.terminal import Lines
from workbench.training.corpus import Sample
from workbench.training.needs import check_torch

TARGET = "target"
FORMAT = 1
_FOLDER_FILES = 10_000
_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Written:
    """Where, what was done, and what to know before it is trained."""

    folder: Path
    lines: tuple[str, ...]
    findings: tuple[CheckResult, ...]


def write(order: Order, out: Path, lines: Lines) -> Written:
    """Write the folder of an order; features that are there from a write that was stopped are kept.

    Raises
    ------
    WorkbenchError
        When the order does not fit its target or corpus, or a file cannot be read or written.
    """
    keys_of(order.specforge_version)
    check_torch()
    folder = _target_folder(order.target)
    target = read_checkpoint(folder)
    vocab = _vocab_size(target)
    data = choose(order, vocab_size=vocab, target=folder, eos=eos_ids(target.text_config))
    ids = capture_ids(target, order.capture)
    draft = draft_config(target, vocab_size=len(data.vocabulary), capture=ids, dtype=order.dtype, changes=order.draft)
    _claim(out, order, str(data.about.get("corpus", {}).get("digest", "")))
    where, keys = _readable(target, out)
    epochs, steps = _length(order, data)
    content = run_yaml.run_content(
        order, target=where, keys=keys, epochs=epochs, steps=steps, cut=len(data.vocabulary) < vocab
    )
    _write_text(out / run_yaml.RUN, yaml.safe_dump(content, sort_keys=False))
    _write_text(out / run_yaml.DRAFT, _json(draft))
    _write_text(out / "commands.sh", run_yaml.commands(order, str(folder.resolve())))
    made = _write_data(order, data, target, out, ids, vocab, lines)
    manifest = _manifest(order, data, target, ids, draft, content) | made
    _write_text(out / MANIFEST, _json(manifest))
    return Written(out, _summary(order, manifest, out), tuple(findings(read_run(out / run_yaml.RUN))))


# --- the target --------------------------------------------------------------------------------------------------


def _target_folder(name: str) -> Path:
    from workbench.training.setup import model_folder

    return model_folder(name)


def _vocab_size(target: Checkpoint) -> int:
    size = target.text_config.get("vocab_size")
    if type(size) is not int:
        raise UsageError("vocab_size not stated", where=target.path / "config.json", next_step="use a whole config")
    return size


def _readable(target: Checkpoint, out: Path) -> tuple[str, dict[str, str]]:
    """The target's path for run.yaml, and the names of its tensors where SpecForge has to be told."""
    head, embedding = head_key(target), embedding_key(target)
    keys = {"lm_head_key": head} if head != HEAD else {}
    keys |= {"embedding_key": embedding} if embedding != EMBEDDING else {}
    if index_fault(target.path, head) is None:
        return str(target.path.resolve()), keys
    linked(target, out / TARGET)
    return f"./{TARGET}", keys


# --- data --------------------------------------------------------------------------------------------------------


def _length(order: Order, data: Data) -> tuple[int, int]:
    if order.conversations is None:
        return steps_of(order, len(data.samples))
    assert order.steps is not None
    wanted = order.steps * order.accumulation_steps * order.batch_size * order.gpus
    return max(1, math.ceil(wanted / max(1, data.about["conversations"]))), order.steps


def _write_data(
    order: Order, data: Data, target: Checkpoint, out: Path, ids: Sequence[int], vocab: int, lines: Lines
) -> dict[str, Any]:
    """Vocabulary, features or ids; what the manifest says of them."""
    from workbench.specforge.features import write_vocabulary

    write_vocabulary(data.vocabulary, vocab, out / run_yaml.VOCABULARY)
    eos = eos_ids(target.text_config)
    if order.conversations is not None:
        return {"loss_mask": "plain"}
    names = [_name(i) for i in range(len(data.samples))]
    if order.mode == "online" or order.features == "list":
        write_ids(data.samples, out / run_yaml.IDS, eos, order.loss_mask, names)
    if order.mode == "offline":
        parts = [(run_yaml.FEATURES, data.samples), (run_yaml.HELD_OUT, data.held_out)]
        if order.features == "write":
            _write_features(order, target, out, parts, ids, lines)
    judged = sum(int(loss_mask(sample, eos, order.loss_mask).sum()) for sample in data.samples)
    return {
        "loss_mask": order.loss_mask,
        "judged_share": judged / data.about["tokens"],
        "features": _described(order, data, target) if order.mode == "offline" else None,
    }


def _name(number: int) -> str:
    return f"{number // _FOLDER_FILES:05d}/{number:08d}.ckpt"


def _write_features(
    order: Order,
    target: Checkpoint,
    out: Path,
    parts: Sequence[tuple[str, Sequence[Sample]]],
    ids: Sequence[int],
    lines: Lines,
) -> None:
    import torch

    from workbench.reference.target import TARGET_CLASS, load_target
    from workbench.specforge.features import write_features
    from workbench.training.processes import join

    if target_class(target) != TARGET_CLASS:
        raise UsageError(
            f"features of a {target_class(target)} cannot be computed here",
            where="features",
            next_step="set features: list and capture them with SGLang, or train online",
        )
    tokens = sum(len(sample.ids) for _, samples in parts for sample in samples)
    _check_space(out, tokens * _bytes_per_token(order, target))
    dtype = torch.bfloat16 if order.dtype == "bfloat16" else torch.float32
    device = join(order.device).device
    # In full precision on a CPU: what is stored is rounded once, at the end.
    model = load_target(target.path, dtype=dtype if device.type == "cuda" else torch.float32, device=device)
    for name, samples in parts:
        paths = [out / name / _name(i) for i in range(len(samples))]
        write_features(model, samples, paths, capture=ids, mask=order.loss_mask, dtype=dtype, say=lines.overwrite)
    lines.clear()


def _bytes_per_token(order: Order, target: Checkpoint) -> int:
    """Three captured states and the last one, an id and a mask."""
    hidden = target.text_config.get("hidden_size")
    return 4 * (hidden if isinstance(hidden, int) else 0) * _BYTES[order.dtype] + 16


def _check_space(out: Path, needed: int) -> None:
    free = shutil.disk_usage(out).free
    if needed > free:
        raise UsageError(
            f"the features take {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free",
            where=out,
            next_step="take fewer prompts or max_tokens, or train online",
        )


def _described(order: Order, data: Data, target: Checkpoint) -> dict[str, Any]:
    """What a feature file holds: for whoever captures them, and for whoever reads them."""
    hidden = target.text_config.get("hidden_size")
    return {
        "written": order.features == "write",
        "files": len(data.samples),
        "names": f"{run_yaml.FEATURES}/" + _name(0) + ", ...: sample i in file i",
        "ids": run_yaml.IDS if order.features == "list" else None,
        "bytes": data.about["tokens"] * _bytes_per_token(order, target),
        "format": "torch.save of a dict of tensors",
        "tensors": {
            "input_ids": "int64 [T]",
            "loss_mask": "int64 [T]",
            "hidden_state": f"{order.dtype} [1, T, {hidden}], last layer's output behind the final norm",
            "aux_hidden_state": f"{order.dtype} [1, T, 3 x {hidden}], outputs of the captured layers, lowest first",
        },
    }


# --- the folder --------------------------------------------------------------------------------------------------


def _claim(out: Path, order: Order, digest: str) -> None:
    """Mark the folder as this order's before features go in; those of another one must not be mixed with them."""
    path = out / "order.json"
    asked = {"order": order.model_dump(mode="json"), "corpus": digest}
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")) != asked:
            raise UsageError("holds what another order wrote", where=out, next_step="name an empty folder")
        return
    if out.exists() and any(out.iterdir()):
        raise UsageError("is not empty", where=out, next_step="name an empty folder")
    out.mkdir(parents=True, exist_ok=True)
    _write_text(path, _json(asked))


def _manifest(
    order: Order,
    data: Data,
    target: Checkpoint,
    ids: Sequence[int],
    draft: Mapping[str, Any],
    content: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": order.name,
        "specforge_version": order.specforge_version,
        "mode": order.mode,
        "target": Path(under_root(order.target)).name,
        "target_class": target_class(target),
        "capture": {"layers_whose_output_is_captured": list(ids)},
        "draft_vocab_size": draft["draft_vocab_size"],
        "steps": content["training"]["max_steps"],
        "design": "fixed epochs" if order.epochs is not None else "fixed steps",
        "data": dict(data.about),
    }


def _summary(order: Order, manifest: Mapping[str, Any], out: Path) -> tuple[str, ...]:
    data = manifest["data"]
    what = f"{data['samples']:,} samples" if "samples" in data else f"{data['conversations']:,} conversations"
    lines = [f"{out}: {order.mode}, {what}, {manifest['steps']:,} steps, for SpecForge {order.specforge_version}"]
    features = manifest.get("features")
    if features:
        done = "written" if features["written"] else f"to be captured, listed in {run_yaml.IDS}"
        lines.append(f"features: {features['files']:,} files, {features['bytes'] / 1e9:,.2f} GB, {done}")
    if (out / TARGET).is_dir():
        lines.append(f"target: links with an index in {TARGET}/ (copy the folder with links followed, such as cp -rL)")
    return (*lines, "run: sh commands.sh")


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
