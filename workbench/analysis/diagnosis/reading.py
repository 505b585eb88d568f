"""What the rules ask of a log: figures derived once from a `LogSummary`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from workbench.analysis.diagnosis.model import Finding
from workbench.analysis.diagnosis.speeds import LevelSpeed, level_speeds
from workbench.analysis.frames import Row, means_by
from workbench.analysis.log_speed import LogSpeeds
from workbench.analysis.prefills import prefills_by_load
from workbench.parse.records import EventKind, LogEvent, LogKind, StartupFacts, WeightBlock
from workbench.table.lines import Flags, Floats, Lines
from workbench.table.logs import LogSummary, log_figures

NOTHING_ACCEPTED = 1.05  # accept length below which a drafter contributes nothing (untrained ones measure 1.02)
MAX_LEVELS = 3  # loads named in a sentence
NOTABLE_SHARE = 0.1  # of the decode lines; below it an odd value or a fault is a passing moment
MIN_LINES = 5  # decode lines that an average of a part of the log needs
_BATCH_SIZES = re.compile(r"\bbs[= ]\[([\d, ]+)\]")
_EAGLE3_CLASS = re.compile("eagle3", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """One log with the figures that rules share."""

    log: LogSummary

    @property
    def facts(self) -> StartupFacts:
        return self.log.facts

    @property
    def windows(self) -> pd.DataFrame:
        return self.log.windows

    @property
    def lines(self) -> Lines:
        return self.log.lines

    @property
    def is_vllm(self) -> bool:
        return self.log.kind is LogKind.VLLM

    @property
    def is_embedded(self) -> bool:
        return self.facts.is_embedded

    @property
    def is_on_cpu(self) -> bool:
        return self.is_embedded or self.arg("device") == "cpu"

    @property
    def is_no_server_log(self) -> bool:
        """A text in which no line is one of SGLang's or vLLM's."""
        return self.log.kind is LogKind.UNKNOWN and not len(self.lines) and not self.facts.server_args

    def arg(self, name: str) -> object:
        """A server argument, ``None`` when unset or not known."""
        return self.facts.server_args.get(name)

    def int_arg(self, name: str) -> int | None:
        """A server argument that is a whole number."""
        value = self.arg(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def events(self, *kinds: EventKind) -> list[LogEvent]:
        return [event for event in self.log.events if event.kind in kinds]

    def adjustment(self, *wordings: str) -> LogEvent | None:
        """The first automatic adjustment with one of these wordings."""
        return next((event for event in self.facts.adjustments if any(word in event.text for word in wordings)), None)

    @cached_property
    def algorithm(self) -> str | None:
        value = self.arg("speculative_algorithm")
        return value.upper() if isinstance(value, str) else None

    @cached_property
    def draft_weights(self) -> WeightBlock | None:
        """The second weight block, which is the draft's."""
        return self.facts.weights[1] if len(self.facts.weights) > 1 else None

    @cached_property
    def has_eagle3_class(self) -> bool | None:
        """Whether the draft's class is an EAGLE-3 one; ``None`` when the log does not say."""
        block = self.draft_weights
        return None if block is None or block.type is None else bool(_EAGLE3_CLASS.search(block.type))

    @cached_property
    def is_speculative(self) -> bool | None:
        """``None`` when neither a server argument nor a whole decode line tells."""
        if self.accept_length is not None or self.log.num_impossible:
            return True
        if "speculative_algorithm" in self.facts.server_args:
            return self.algorithm is not None
        if not np.isnan(self.lines["accept_rate_printed"]).all():
            return True
        return False if len(self.lines) > self.num_cut else None

    @cached_property
    def num_cut(self) -> int:
        """Decode lines that are cut off or hold an accept length that is no number."""
        return int(self.lines.flag("truncated").sum())

    @cached_property
    def ranks(self) -> int:
        """Data parallel ranks, by the server arguments or the decode lines."""
        return max(1, self.int_arg("dp_size") or 1, len(_known(self.lines["dp_rank"])))

    def ranks_at(self, level: int) -> int:
        """Data parallel ranks that `speed_at` adds up."""
        return len(self._speeds_at(level))

    def lines_at(self, level: int) -> int:
        """Decode lines whose speed can be read, at this load."""
        return int((self.busy["running_req"] == level).sum())

    @cached_property
    def figures(self) -> dict[str, object]:
        return dict(log_figures(self.lines))

    def figure(self, name: str) -> float | None:
        value = self.figures.get(name)
        return float(value) if isinstance(value, int | float) else None

    @cached_property
    def accept_length(self) -> float | None:
        return self.figure("accept_length_log")

    @cached_property
    def num_accept_lines(self) -> int:
        return int((~np.isnan(self.lines["accept_len"])).sum())

    @cached_property
    def accept_rate(self) -> float | None:
        """(accept length - 1) / steps; 0 for accept length 1, whatever the steps."""
        if self.accept_length is None:
            return None
        if round(self.accept_length, 2) <= 1.0:
            return 0.0
        return (self.accept_length - 1) / self.facts.num_steps if self.facts.num_steps else None

    @cached_property
    def by_load(self) -> LogSpeeds:
        return LogSpeeds(self.lines)

    @cached_property
    def busy(self) -> Lines:
        """Decode lines whose speed can be read."""
        known = (self.lines["gen_tok_per_s"] > 0) & (self.lines["running_req"] > 0)
        return self.lines.only(known & ~self.lines.flag("idle"))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The loads (requests running) that hold most of the decode lines, ascending; of equal ones the first met."""
        loads, first, counts = np.unique(self.busy["running_req"], return_index=True, return_counts=True)
        common = [place for place in np.lexsort((first, -counts)) if counts[place] >= max(1.0, 0.05 * len(self.busy))]
        return tuple(sorted(int(loads[place]) for place in common[:MAX_LEVELS]))

    def speed_at(self, level: int) -> float | None:
        """Median speed with ``level`` requests running on each data parallel rank, summed over the ranks."""
        speeds = self._speeds_at(level)
        return math.fsum(speeds) if speeds else None

    def _speeds_at(self, level: int) -> tuple[float, ...]:
        """The median speed of each data parallel rank."""
        if level not in self._speeds:
            there = self.busy.only(self.busy["running_req"] == level)
            rank, speed = there["dp_rank"], there["gen_tok_per_s"]
            self._speeds[level] = tuple(float(np.median(speed[rank == number])) for number in _known(rank))
        return self._speeds[level]

    def accept_length_at(self, level: int) -> float | None:
        return self._accept_lengths.get(level)

    @cached_property
    def prefills(self) -> dict[int, Row]:
        """By load; nothing for a speculative log that does not tell its accept lengths, and so not its cycles."""
        if self.is_speculative and self.accept_length is None:
            return {}
        return {row["running_req"]: row for row in prefills_by_load(self.lines)}

    @cached_property
    def over_all_loads(self) -> str:
        """``, over all loads`` where the accept length at a load that is told of is another than that of the log."""
        own = [f"{length:.2f}" for level in self.levels if (length := self.accept_length_at(level)) is not None]
        is_mixed = self.accept_length is not None and any(length != f"{self.accept_length:.2f}" for length in own)
        return ", over all loads," if is_mixed else ""

    @cached_property
    def _speeds(self) -> dict[int, tuple[float, ...]]:
        return {}

    @cached_property
    def _accept_lengths(self) -> dict[int, float]:
        return means_by(self.lines["running_req"], self.lines["accept_len"])

    @cached_property
    def running_limit(self) -> int | None:
        return self.facts.max_running_requests or self.int_arg("max_running_requests")

    @cached_property
    def graph_limit(self) -> int | None:
        """The largest batch with a CUDA graph, by the server arguments or the capture lines."""
        stated = self.int_arg("cuda_graph_max_bs_decode") or self.int_arg("cuda_graph_max_bs")
        if stated:
            return stated
        captured = [
            int(size)
            for event in self.events(EventKind.GRAPH_CAPTURE)
            if "draft" not in event.text and "prefill" not in event.text
            for match in _BATCH_SIZES.findall(event.text)
            for size in match.split(",")
            if size.strip()
        ]
        return max(captured, default=None)

    @cached_property
    def graph_on(self) -> Flags:
        """The graph flag of the decode lines that carry one."""
        stated = self.lines["cuda_graph"]
        return np.asarray(stated[~np.isnan(stated)] == 1, dtype=np.bool_)


def _known(values: Floats) -> Floats:
    """The different values, ascending."""
    return np.unique(values[~np.isnan(values)])


@dataclass(frozen=True)
class Case:
    """What is being diagnosed.

    ``draft_findings`` come from the checks of a draft checkpoint. ``simulated_length`` is the accept length that the
    server was told to pretend, as far as whoever started it says.
    """

    log: Reading
    baseline: Reading | None = None
    draft_findings: tuple[Finding, ...] = ()
    simulated_length: float | None = None

    @cached_property
    def simulation(self) -> LogEvent | None:
        """The line that shows that acceptance is simulated: only where the log happens to print the environment."""
        return next((event for event in self.log.log.events if "SIMULATE_ACC_LEN" in event.text), None)

    @cached_property
    def is_pair(self) -> bool:
        """A speculative log with a plain baseline, both with speeds, of one engine and as many ranks."""
        base = self.baseline
        return (
            base is not None
            and bool(self.log.is_speculative)
            and base.is_speculative is False
            and bool(len(self.log.busy) and len(base.busy))
            and self.log.log.kind is base.log.kind
            and self.log.ranks == base.ranks
        )

    @cached_property
    def level_speeds(self) -> tuple[LevelSpeed, ...]:
        """Both logs at the loads that hold most of this one; empty where they cannot be compared."""
        if not self.is_pair or self.baseline is None:
            return ()
        common = level_speeds(self.log.by_load, self.baseline.by_load, ranks=self.log.ranks)
        return tuple(item for item in common if item.level in self.log.levels)

    @cached_property
    def has_wrong_flag(self) -> bool:
        """server_args say EAGLE (or NEXTN, which SGLang rewrites to EAGLE), the draft's class is an EAGLE-3 one."""
        return self.log.algorithm in {"EAGLE", "NEXTN"} and self.log.has_eagle3_class is True

    @cached_property
    def accepts_nothing(self) -> bool:
        length = self.log.accept_length
        return length is not None and length < NOTHING_ACCEPTED
