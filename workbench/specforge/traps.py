"""What is known to go wrong with a SpecForge run, from its run.yaml, its draft's config and the target's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.checkpoint import Checkpoint, read_checkpoint
from workbench.errors import SpecError, WorkbenchError
from workbench.files import read_small
from workbench.plain import from_json, from_yaml
from workbench.preflight.result import CheckResult, Severity
from workbench.sglang_rules.capture import captured_layers
from workbench.specforge.draft import NEVER, target_class
from workbench.specforge.target import index_fault
from workbench.specforge.validate import faults, is_run, value

MANIFEST = "manifest.json"
UNWRITTEN_VERSION = "0.2.0"
"""Taken where nothing says which version a run is for."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run.yaml and what was found around it; ``None`` where it is not there, or not on this machine."""

    path: Path
    content: Mapping[str, Any]
    version: str = UNWRITTEN_VERSION
    draft: Mapping[str, Any] | None = None
    target: Checkpoint | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)

    def of(self, path: str) -> Any:
        return value(self.content, path, self.version)

    def at(self, key: str) -> str:
        return f"{self.path}: {key}"


def read_run(path: Path) -> Run:
    """A run.yaml with the files that it names.

    Raises
    ------
    SpecError
        When it is none.
    """
    try:
        content = from_yaml(read_small(path).decode(), version="1.1")  # as SpecForge reads it
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot be read ({' '.join(str(error).split())})", where=path) from error
    if not is_run(content):
        raise SpecError("no run.yaml of SpecForge", where=path, next_step="it has the sections model and data")
    manifest = read_json(path.parent / MANIFEST) or {}
    model = content["model"]
    return Run(
        path,
        content,
        str(manifest.get("specforge_version", UNWRITTEN_VERSION)),
        read_json(beside(path, model.get("draft_model_config"))),
        _target(beside(path, model["target_model_path"])),
        manifest,
    )


def beside(path: Path, name: object) -> Path:
    """A path of run.yaml; SpecForge starts from the folder where it is called, which is taken to be the file's."""
    return path.parent / str(name)


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = from_json(read_small(path / "config.json" if path.is_dir() else path))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def is_run_file(path: Path) -> bool:
    """Whether a file is a run.yaml of SpecForge; what cannot be read is none."""
    try:
        return is_run(from_yaml(read_small(path).decode(), version="1.1"))
    except (OSError, ValueError):
        return False


def _target(folder: Path) -> Checkpoint | None:
    try:
        return read_checkpoint(folder, weights=False)
    except WorkbenchError:
        return None


def findings(run: Run) -> list[CheckResult]:
    """Everything found, the worst first."""
    try:
        wrong = faults(run.content, run.version)
    except WorkbenchError as error:
        return [CheckResult("specforge-version", Severity.ERROR, error.what, run.at("version"), error.next_step or "")]
    if wrong:
        return [
            CheckResult(
                "specforge-schema",
                Severity.ERROR,
                f"{fault.where} {fault.what}",
                run.at(fault.where),
                "correct it",
                f"SpecForge {run.version} refuses the file",
            )
            for fault in wrong
        ]
    checks = (index, norm_output, positions, capture, mask, mean_loss, epochs_saved)
    order = list(Severity)
    return sorted((found for check in checks for found in check(run)), key=lambda found: order.index(found.severity))


def index(run: Run) -> Iterator[CheckResult]:
    if run.target is None or run.of("model.target_backend") != "sglang":
        return
    key = run.of("model.lm_head_key")
    fault = index_fault(run.target.path, key)
    if fault is not None:
        tied = run.target.text_config.get("tie_word_embeddings")
        yield CheckResult(
            "specforge-index",
            Severity.ERROR,
            f"the target's folder has {fault}" if key not in fault else fault,
            str(run.target.path),
            "let `workbench specforge write` make a folder of links with an index"
            + (", and set model.lm_head_key to the embedding's name" if tied and "lm_head" in key else ""),
            "SpecForge 0.2.0 reads the target's head through that index alone: 'No index.json file found'",
        )


def norm_output(run: Run) -> Iterator[CheckResult]:
    if run.draft is not None and NEVER in run.draft:
        yield CheckResult(
            "specforge-norm-output",
            Severity.ERROR,
            f"{NEVER} is {run.draft[NEVER]!r}",
            run.at("model.draft_model_config"),
            "leave the key out",
            "SpecForge 0.2.0 takes it for a norm before the head, SGLang for the state that is passed on (SpecForge "
            "PR 879): with either value the two compute different drafts",
        )


def positions(run: Run) -> Iterator[CheckResult]:
    if run.draft is None:
        if not run.of("model.draft_model_config"):
            return
        yield CheckResult(
            "specforge-draft-config",
            Severity.WARNING,
            "the draft's config is not here, so it was not checked",
            run.at("model.draft_model_config"),
            "give a file beside run.yaml",
        )
        return
    ours = run.draft.get("max_position_embeddings")
    theirs = None if run.target is None else run.target.text_config.get("max_position_embeddings")
    if not isinstance(ours, int) or (isinstance(theirs, int) and ours < theirs):
        yield CheckResult(
            "specforge-positions",
            Severity.ERROR,
            f"max_position_embeddings is {ours}" + (f", the target's {theirs}" if theirs is not None else ""),
            run.at("model.draft_model_config"),
            "write the target's number",
            "accept length collapses in serving beyond it (SpecForge issue 249, PR 271)",
        )


def capture(run: Run) -> Iterator[CheckResult]:
    eagle = (run.draft or {}).get("eagle_config")
    served = eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, dict) else None
    trained = run.of("model.aux_hidden_state_layer_ids")
    if trained is not None and run.draft is not None and trained != served:
        yield CheckResult(
            "specforge-capture",
            Severity.ERROR,
            f"layers {trained} are captured in training and {served} stand in the draft's config",
            run.at("model.aux_hidden_state_layer_ids"),
            "state them in the draft's eagle_config only",
            "the server reads the draft's config",
        )
    ids = trained or served
    layers = 0 if run.target is None else run.target.text_config.get("num_hidden_layers")
    if (
        run.target is None
        or type(layers) is not int
        or not isinstance(ids, list)
        or not all(type(i) is int for i in ids)
    ):
        return
    inputs = captured_layers(target_class(run.target), ids, layers)
    if inputs != tuple(i + 1 for i in ids):
        yield CheckResult(
            "specforge-capture",
            Severity.WARNING,
            f"SGLang captures the outputs of layers {[i - 1 for i in inputs]} for ids {ids} of this target",
            run.at("model.draft_model_config"),
            "use ids that begin with 1, or see which layers the training captures",
            "some classes add one to the ids only where the first is 1",
        )


def mask(run: Run) -> Iterator[CheckResult]:
    if run.manifest.get("loss_mask") == "shifted":
        yield CheckResult(
            "specforge-mask",
            Severity.NOTE,
            "the masks are written shifted by one",
            str(run.path.parent / MANIFEST),
            f"train with SpecForge {run.version}; write them again as `plain` for a version that shifts them itself",
            "0.2.0 shifts ids and labels and not the mask (SpecForge issue 885, PR 895)",
        )
        return
    yield CheckResult(
        "specforge-mask",
        Severity.WARNING,
        "SpecForge 0.2.0 does not shift the mask with ids and labels",
        run.at("data"),
        "write ids or features with `workbench specforge write`, whose masks make up for it",
        "the first drafted token of every answer is never trained (SpecForge issue 885)",
    )


def mean_loss(run: Run) -> Iterator[CheckResult]:
    share = run.manifest.get("judged_share")
    batch = run.of("training.batch_size")
    said = "" if not isinstance(share, float) else f"; {share:.0%} of the slots are judged here"
    yield CheckResult(
        "specforge-loss-mean",
        Severity.WARNING if batch > 1 else Severity.NOTE,
        f"the loss is a mean over all slots, prompt and padding too{said}",
        run.at("training.batch_size"),
        "batch_size 1 with accumulation_steps, which has no padding" if batch > 1 else "do not compare its loss",
        "gradient and loss scale with the share of slots that are judged, so a step weighs samples differently",
    )


def epochs_saved(run: Run) -> Iterator[CheckResult]:
    if not run.of("training.save_interval"):
        yield CheckResult(
            "specforge-save",
            Severity.NOTE,
            "nothing is saved before the end",
            run.at("training.save_interval"),
            "set checkpoint_steps (training.save_interval) for long runs",
        )
