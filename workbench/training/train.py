"""Train a drafter: target features computed on the way, an unrolled draft, checkpoints from which a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from workbench.drafter.checkpoint import save_draft
from workbench.errors import UsageError
from workbench.progress import duration
from workbench.training import evaluate, order, record, state
from workbench.training.compiled import Compiled
from workbench.training.config import TrainConfig
from workbench.training.cost import Watch, peak_flops, step_flops
from workbench.training.optimise import rate
from workbench.training.processes import Processes, join
from workbench.training.setup import Setup, prepare
from workbench.training.state import Position
from workbench.training.step import Stepper

UNCOUNTED_STEPS = 3
_ENOUGH_TO_COMPILE = 400
"""Steps. Compiling takes some ten seconds and should save some hundredths of one a step."""

Say = Callable[[str], None]


def train(config: TrainConfig, *, resume: bool, say: Say, overwrite: Say) -> Path:
    """Train one drafter and return its folder, ready to be served.

    ``say`` is told what stays, ``overwrite`` how far the run is.

    Raises
    ------
    UsageError, InputError
        When the config, its data and its folder do not fit together.
    """
    out = Path(config.out)
    _check_folder(out, resume)
    processes = join(config.device)
    try:
        if not processes.leads:
            say = overwrite = _nothing
        run = _Run(config, prepare(config, processes.device), processes, out, say, overwrite)
        if resume and (out / state.NAME).is_file():
            run.restore()
        run.finish_steps()
    finally:
        processes.leave()
    if processes.leads:
        run.finish()
    return out


def _check_folder(out: Path, resume: bool) -> None:
    if (out / record.RECORD).is_file():
        raise UsageError("holds a finished drafter", where=out, next_step="name another folder, or remove this one")
    if (out / state.NAME).is_file() and not resume:
        raise UsageError(
            "a run began here and did not finish", where=out, next_step="go on with --resume, or remove the folder"
        )


class _Run:
    def __init__(
        self, config: TrainConfig, setup: Setup, processes: Processes, out: Path, say: Say, overwrite: Say
    ) -> None:
        device = processes.device
        self._config = config
        self._setup = setup
        self._processes = processes
        self._out = out
        self._say, self._overwrite = say, overwrite
        self._steps = _steps(config, setup)
        self._compile = _pays(device, self._steps) if config.compile == "auto" else config.compile
        self._stepper = Stepper(setup, config, processes, Compiled(self._compile))
        self._position = Position()
        self._watch = Watch(device, UNCOUNTED_STEPS)
        self._marked = self._watch.mark()
        self._saved_at = time.monotonic()

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def finish_steps(self) -> None:
        """Everything that is left of the run."""
        self._say(self._beginning())
        for step in self._plan():
            progress = self._progress()
            if progress >= 1:
                break
            mine = order.share(step, self._processes.rank, self._processes.world)
            read = self._stepper.step(mine, rate(self._config, progress))
            self._count(step, read)
            if self._position.step % self._config.log_steps == 0:
                self._log(progress)
            self._now_and_then()
        if self._position.step % self._config.log_steps:
            self._log(1.0)
        self._save()

    def _plan(self) -> Iterator[order.Step]:
        """The steps that are left; samples come epoch after epoch, so there is always another."""
        config, position = self._config, self._position
        while True:
            steps = order.epoch(self._setup.samples, position.epoch, seed=config.seed, tokens=config.tokens_per_step)
            for number, step in enumerate(steps):
                if number >= position.in_epoch:
                    yield step
            position.epoch, position.in_epoch = position.epoch + 1, 0

    def _progress(self) -> float:
        """How much of the run is done at the middle of the next step; 1 is its end."""
        if self._steps is not None:
            return 1.0 if self._position.step >= self._steps else (self._position.step + 0.5) / self._steps
        assert self._config.minutes is not None
        return self._processes.agreed(self._position.seconds / (60 * self._config.minutes))

    def _count(self, step: order.Step, read: float) -> None:
        position, draft = self._position, self._setup.draft.config
        responses = sum(sample.response_tokens for sample in step)
        position.step += 1
        position.in_epoch += 1
        position.samples += len(step)
        position.tokens += sum(len(sample.ids) for sample in step)
        position.response_tokens += responses
        shape, kept = self._setup.target.shape, draft.draft_vocab_size
        sizes = {"passes": self._config.passes, "captured": draft.num_captured, "kept": kept}
        flops = step_flops(step, shape, **sizes, read=read)
        position.seconds += self._watch.step(responses, flops)

    def _now_and_then(self) -> None:
        config, position = self._config, self._position
        if config.evaluate_steps is not None and position.step % config.evaluate_steps == 0:
            with self._watch.paused():
                self._judge_on_the_way()
        if time.monotonic() - self._saved_at >= 60 * config.checkpoint_minutes:
            with self._watch.paused():
                self._save()

    # ---- what is said and written -----------------------------------------------------------------------------------

    def _beginning(self) -> str:
        about, draft = self._setup.about, self._setup.draft
        length = f"{self._steps:,} steps" if self._steps is not None else f"{self._config.minutes:g} minutes"
        weights = sum(parameter.numel() for parameter in draft.parameters())
        return (
            f"{self._config.name}: {about['samples']:,} samples to {about['prompts']:,} prompts, "
            f"{about['response_tokens']:,} response tokens; {weights / 1e6:.1f}M weights, "
            f"{draft.config.draft_vocab_size:,} ids that cover {about['draft_vocab_coverage']:.1%} of the responses; "
            f"{length} from step {self._position.step} on, on {self._processes.device} x {self._processes.world}"
        )

    def _log(self, progress: float) -> None:
        # Reading the figures waits for the device, so that the time that has passed is the steps' own.
        figures = self._stepper.figures()
        self._position.seconds += self._watch.tick()
        position, speed = self._position, self._speed_since(self._marked)
        self._marked = self._watch.mark()
        line = {
            "step": position.step,
            "epoch": position.epoch,
            "samples": position.samples,
            "response_tokens": position.response_tokens,
            "seconds": position.seconds,
            "learning_rate": rate(self._config, progress),
            **figures,
            **speed,
        }
        if not self._processes.leads:
            return
        record.append_log(self._out, line)
        left = (
            f", about {duration(position.seconds * (1 / progress - 1))} left" if position.seconds and progress else ""
        )
        first, last = figures["accuracy_by_pass"][0], figures["accuracy_by_pass"][-1]
        tokens = f", {speed['response_tokens_per_s']:,.0f} tokens/s" if speed["response_tokens_per_s"] else ""
        self._overwrite(
            f"step {position.step}, epoch {position.epoch}: loss {figures['loss']:.3f}, "
            f"right {first:.1%} in the first pass, {last:.1%} in the last{tokens}{left}"
        )

    def _speed_since(self, mark: tuple[float, int, float]) -> dict[str, float | None]:
        seconds, tokens, flops = (now - then for now, then in zip(self._watch.mark(), mark, strict=True))
        peak = peak_flops(self._processes.device)
        return {
            "response_tokens_per_s": tokens / seconds if seconds else None,
            "flops_per_s": flops / seconds if seconds else None,
            # Of all processes' peaks together.
            "mfu": flops / seconds / peak / self._processes.world if seconds and peak else None,
        }

    def _judge_on_the_way(self) -> None:
        if self._processes.leads and self._setup.held_out:
            lengths = self._held_out()["accept_length"]
            record.append_log(self._out, {"step": self._position.step, "held_out_accept_length": lengths})
            self._say(f"step {self._position.step}: held-out accept length {_shown(lengths)}")

    def _held_out(self) -> dict[str, Any]:
        setup, config = self._setup, self._config
        found = evaluate.walks(setup.target, setup.draft, setup.held_out, capture=setup.capture, steps=config.passes)
        return evaluate.summary(found, seed=config.seed)

    # ---- state and result -------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._processes.leads:
            parts = {"weights": self._setup.master.state_dict(), "optimiser": self._stepper.optimiser.state()}
            state.save(self._out, self._config, self._digest, self._position, parts)
        self._saved_at = time.monotonic()

    def restore(self) -> None:
        self._position, parts = state.load(self._out, self._config, self._digest, self._processes.device)
        self._setup.master.load_state_dict(parts["weights"])
        self._stepper.optimiser.restore(parts["optimiser"])
        if self._processes.leads:
            record.cut_log(self._out, self._position.step)

    @property
    def _digest(self) -> str:
        return str(self._setup.about["corpus"]["digest"])

    def finish(self) -> None:
        """Write the drafter and what is known of it; the state goes when all is there."""
        save_draft(self._setup.master, self._out)
        position, config, setup = self._position, self._config, self._setup
        lines = record.read_log(self._out)
        offline = self._held_out() if setup.held_out else None
        record.write_record(
            self._out,
            {
                "name": config.name,
                "config": config.model_dump(mode="json"),
                "data": setup.about,
                "seen": {
                    "optimizer_steps": position.step,
                    "epochs": position.samples / setup.about["samples"],
                    "samples": position.samples,
                    "tokens": position.tokens,
                    "response_tokens": position.response_tokens,
                },
                "draft_vocab_size": setup.draft.config.draft_vocab_size,
                "trainable_weights": sum(parameter.numel() for parameter in setup.master.parameters()),
                "seconds": position.seconds,
                "processes": self._processes.world,
                "compiled": self._compile,
                "speed_of_this_process": self._speed_since((0.0, 0, 0.0)),
                "machine": record.machine(self._processes.device),
                "held_out": offline,
                "curve": lines,
            },
        )
        (self._out / state.NAME).unlink(missing_ok=True)
        lengths = _shown(offline["accept_length"]) if offline else "not measured (nothing is held out)"
        self._say(f"{self._out}: trained {position.step:,} steps; held-out accept length {lengths}")


def _nothing(_: str) -> None:
    pass


def _steps(config: TrainConfig, setup: Setup) -> int | None:
    """Optimizer steps of the whole run, unknown where its time is given."""
    if config.epochs is None:
        return config.steps
    return order.steps_in(setup.samples, config.epochs, seed=config.seed, tokens=config.tokens_per_step)


def _pays(device: torch.device, steps: int | None) -> bool:
    """Whether compiling does."""
    return device.type == "cuda" and (steps is None or steps >= _ENOUGH_TO_COMPILE)


def _shown(lengths: dict[str, float]) -> str:
    return ", ".join(f"{length:.3f} at {steps}" for steps, length in lengths.items())
