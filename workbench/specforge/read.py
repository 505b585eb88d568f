"""``workbench specforge read``: a run of SpecForge as the record of a training, for campaigns to show its drafter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.checkpoint import read_checkpoint
from workbench.errors import CheckpointError, InputError, UsageError
from workbench.files import replacing
from workbench.plain import to_yaml
from workbench.spec import Drafter
from workbench.specforge.draft import DRAFT_CLASS
from workbench.specforge.log import Point, listed, number, numbered
from workbench.specforge.run_folder import Left, export_command
from workbench.specforge.traps import MANIFEST, Run, beside, findings
from workbench.trained import RECORD, data_mix

TRAINER = "SpecForge"
_FIGURES = {
    "loss": "loss",
    "gradient_norm": "grad_norm",
    "learning_rate": "lr",
    "samples_per_s": "perf/global_samples_per_second",
}
_DEFINITIONS = {
    "loss": "as printed: sum over passes of 0.8^pass x the mean over all slots, prompt and padding too",
    "accuracy_by_pass": "share of judged slots at which the draft's choice is the target's",
    "simulated_accept_length": "1 + a0 + a0 a1 + ... of the accuracies of each pass, as if they were independent",
}


def make_record(left: Left, *, name: str | None = None, version: str | None = None) -> dict[str, Any]:
    """What is known of a run, in the shape of our training.json; what is not known is not in it.

    Parameters
    ----------
    name
        Of the drafter; else the run's.
    version
        Of the SpecForge that ran; else the one that the folder was written for.

    Raises
    ------
    InputError
        When run.yaml or the manifest state what no run can have.
    """
    try:
        return _record(left, name, version)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        where = left.folder if left.run is None else left.run.path
        what = f"run.yaml and {MANIFEST} make no sense together ({' '.join(str(error).split())[:200]})"
        raise InputError(what, where=where, next_step="see `workbench check` for run.yaml") from error


def _record(left: Left, name: str | None, version: str | None) -> dict[str, Any]:
    run = left.run
    manifest: Mapping[str, Any] = {} if run is None else run.manifest
    ran = version or manifest.get("specforge_version")
    steps = _steps(left)
    data = dict(manifest.get("data") or {})
    samples = data.get("samples", _feature_files(run))
    seen = _seen(run, steps, samples)
    record: dict[str, Any] = {
        "name": name or (str(run.of("run_id")) if run is not None else left.folder.name),
        "trainer": f"{TRAINER} {ran}" if ran else TRAINER,
        "config": {} if run is None else _config(run, manifest),
        "data": data | _known(samples=samples),
        "seen": seen,
        "draft_vocab_size": _draft_vocab(run, manifest),
        "processes": None if run is None else _processes(run),
        "curve": _curve(left.log.steps),
        "evaluations": [_evaluation(point) for point in left.log.evaluations],
        "definitions": _DEFINITIONS,
        "ended_with": left.log.error,
    }
    record["drafter"] = _drafter(record, run, manifest)
    return _known(**record)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


# --- the parts of it ---------------------------------------------------------------------------------------------


def _config(run: Run, manifest: Mapping[str, Any]) -> dict[str, Any]:
    return _known(
        target=_target(run, manifest),
        seed=run.of("training.seed"),
        passes=run.of("training.ttt_length"),
        learning_rate=run.of("training.learning_rate"),
        samples_per_step=_samples_per_step(run),
        max_tokens=run.of("data.max_length"),
        loss_mask=manifest.get("loss_mask"),
        # The section that may hold keys of accounts stays out of what is passed on.
        specforge={name: section for name, section in run.content.items() if name != "tracking"},
    )


def _target(run: Run, manifest: Mapping[str, Any]) -> str:
    return str(manifest.get("target") or Path(str(run.of("model.target_model_path"))).name)


def _processes(run: Run) -> int:
    return int(run.of("deployment.trainer.nnodes") * run.of("deployment.trainer.nproc_per_node"))


def _samples_per_step(run: Run) -> int:
    shared = run.of("training.sp_ulysses_size") * run.of("training.sp_ring_size")
    alike = max(1, _processes(run) // shared)
    return int(run.of("training.batch_size") * run.of("training.accumulation_steps") * alike)


def _feature_files(run: Run | None) -> int | None:
    """How many samples an offline run has, where its features are at hand."""
    path = "" if run is None else run.of("data.hidden_states_path")
    if run is None or not path or not beside(run.path, path).is_dir():
        return None
    return (
        sum(1 for file in beside(run.path, path).rglob("*.ckpt*") if file.name.endswith((".ckpt", ".ckpt.gz"))) or None
    )


def _steps(left: Left) -> int | None:
    """Optimizer steps of the newest checkpoint, or of the whole run where its log says that it came to its end."""
    if left.checkpoints:
        return max(left.checkpoints)
    if left.run is None or not left.log.steps or left.log.error is not None:
        return None
    asked = left.run.of("training.max_steps")
    return (
        asked if asked is not None and left.log.steps[-1].step > asked - left.run.of("training.log_interval") else None
    )


def _seen(run: Run | None, steps: int | None, samples: int | None) -> dict[str, Any]:
    if steps is None or run is None:
        return _known(optimizer_steps=steps)
    seen = steps * _samples_per_step(run)
    return _known(optimizer_steps=steps, samples=seen, epochs=seen / samples if samples else None)


def _draft_vocab(run: Run | None, manifest: Mapping[str, Any]) -> int | None:
    stated = manifest.get("draft_vocab_size") or ((run.draft or {}).get("draft_vocab_size") if run else None)
    return stated if isinstance(stated, int) else None


def _curve(points: list[Point]) -> list[dict[str, Any]]:
    clocks = [point.seconds for point in points if point.seconds is not None]
    return [
        {"step": point.step}
        | _known(**{ours: number(point, theirs) for ours, theirs in _FIGURES.items()})
        | _known(
            accuracy_by_pass=list(numbered(point, "acc_")) or None,
            acceptance_by_pass=list(numbered(point, "acceptance_rate_")) or None,
            seconds=None if point.seconds is None else point.seconds - clocks[0],
        )
        for point in points
    ]


def _evaluation(point: Point) -> dict[str, Any]:
    drafted = number(point, "eval/simulated_acc_len")
    return {"step": point.step} | _known(
        loss=number(point, "eval/avg_loss"),
        accuracy_by_pass=list(listed(point, "eval/per_position_acc")) or None,
        # SpecForge counts drafts only, and a step yields the target's own token, too.
        simulated_accept_length=None if drafted is None else 1 + drafted,
    )


# --- as a campaign's drafter -------------------------------------------------------------------------------------


def _drafter(record: Mapping[str, Any], run: Run | None, manifest: Mapping[str, Any]) -> dict[str, Any]:
    data, seen = record["data"], record["seen"]
    epochs = seen.get("epochs")
    stated = _known(
        name=record["name"],
        target=record["config"].get("target"),
        training_samples=data.get("samples"),
        response_tokens=data.get("response_tokens"),
        seed=record["config"].get("seed"),
        optimizer_steps=seen.get("optimizer_steps"),
        epochs=None if epochs is None else round(epochs, 3),
        draft_vocab_size=record["draft_vocab_size"],
        data_mix=data_mix({"config": {}, "data": data}) if data.get("corpus") else None,
        recipe=_recipe(record, run, manifest),
        design=manifest.get("design"),
    )
    return Drafter.model_validate(stated).model_dump(mode="json", exclude_unset=True)


def _recipe(record: Mapping[str, Any], run: Run | None, manifest: Mapping[str, Any]) -> str:
    """The same for all sizes of one design, and never that of a training of ours."""
    said = record["trainer"] if record["trainer"] != TRAINER else f"{TRAINER}, version not stated"
    if run is None:
        return f"{said}, settings not stated"
    rate, passes = float(run.of("training.learning_rate")), run.of("training.ttt_length")
    said += f", {passes} passes, learning rate {rate:g}, {_samples_per_step(run)} samples a step"
    lengths = {
        "fixed epochs": f", {run.of('training.num_epochs')} epochs",
        "fixed steps": f", {manifest.get('steps')} steps",
    }
    masks = {"shifted": ", masks shifted", "plain": ", masks not shifted"}
    return said + lengths.get(str(manifest.get("design")), "") + masks.get(str(manifest.get("loss_mask")), "")


def save(record: Mapping[str, Any], left: Left, drafter: Path) -> Path:
    """Put the record beside the weights of an exported drafter, where campaigns look for it.

    Raises
    ------
    CheckpointError, UsageError
        When no exported drafter is there, or the folder holds the record of another training.
    """
    next_step = export_command(left, drafter)
    if not (drafter / "config.json").is_file():
        raise CheckpointError("no exported drafter", where=drafter, next_step=next_step)
    draft = read_checkpoint(drafter)
    if not draft.tensors:
        raise CheckpointError("no safetensors, and pickles are not opened", where=drafter, next_step=next_step)
    if draft.config.get("architectures") != [DRAFT_CLASS]:
        raise CheckpointError(f"is no {DRAFT_CLASS}", where=drafter, next_step=next_step)
    path = drafter / RECORD
    if path.is_file() and TRAINER not in str(json.loads(path.read_text(encoding="utf-8")).get("trainer")):
        raise UsageError("is the record of a training of ours", where=path, next_step="name another folder")
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def text(record: Mapping[str, Any], left: Left, drafter: Path | None) -> str:
    """What was read, what is missing, and the drafter's entry for a campaign file."""
    curve, seen = record["curve"], record["seen"]
    lines = [f"{record['name']}: {record['trainer']}, {_told(seen, record['data'])}"]
    if curve:
        accuracy = ", ".join(f"{value:.1%}" for value in curve[-1].get("accuracy_by_pass", ()))
        lines.append(
            f"last figures, step {curve[-1]['step']:,}: loss {curve[-1].get('loss')}, right {accuracy or 'not printed'}"
        )
    if record["evaluations"]:
        last = record["evaluations"][-1]
        lines.append(
            f"its evaluation, step {last['step']:,}: accept length {last.get('simulated_accept_length')} (simulated)"
        )
    if left.log.unread:
        lines.append(f"{left.log.unread} lines of figures could not be read")
    lines += [f"{problem.where}: {problem.what}" for problem in left.problems]
    if "ended_with" in record:
        lines.append(f"it ended with: {record['ended_with']}")
    if left.run is not None:
        lines += [f"{found.severity.value}: {found.what}" for found in findings(left.run)]
    if drafter is None and left.checkpoints:
        lines.append(
            f"checkpoints are pickles, which are not opened; to serve it:\n  {export_command(left, Path('DRAFTER'))}"
        )
    entry = record["drafter"] | ({} if drafter is None else {"model_path": str(drafter)})
    return "\n".join([*lines, "for a campaign's `drafters`:", to_yaml([entry]).rstrip()])


def _told(seen: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    known = {
        "samples": data.get("samples"),
        "optimizer steps": seen.get("optimizer_steps"),
        "epochs": None if seen.get("epochs") is None else round(seen["epochs"], 2),
    }
    return ", ".join(f"{name} {'not known' if value is None else f'{value:,}'}" for name, value in known.items())
