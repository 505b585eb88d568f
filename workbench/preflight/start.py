"""The checks of a server start, in the order in which their findings are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from workbench.preflight import start_cache, start_decode, start_flags, start_load, start_machine, start_models
from workbench.preflight.result import CheckResult
from workbench.preflight.start_case import Machine, Read, StartCase, reader, this_machine
from workbench.sweep import CampaignSpec, Start

Check = Callable[[StartCase], Iterator[CheckResult]]

# These look at the campaign alone.
CAMPAIGN_CHECKS: tuple[Check, ...] = (
    start_machine.program,
    start_machine.version,
    start_load.prompts,
    start_load.sampling,
    start_load.windows,
)
START_CHECKS: tuple[Check, ...] = (
    start_decode.algorithm_name,
    start_decode.algorithm_of_drafter,
    start_decode.draft_path,
    start_decode.drafter_target,
    start_decode.shape,
    start_decode.draft_backend,
    start_decode.default_backend,
    start_decode.overlap,
    start_flags.known,
    start_flags.said_elsewhere,
    start_flags.lossy,
    start_flags.variables,
    start_flags.forced_length,
    start_load.queueing,
    start_load.graph_limit,
    start_load.memory_fraction,
    start_load.answers_fit,
    start_models.present,
    start_models.readable,
    start_models.target_heads,
    start_models.target_context,
    start_models.quantized_target,
    start_models.draft,
    start_models.memory,
    start_cache.draft_cache,
    start_machine.gpus,
)


def check_start(
    start: Start, campaign: CampaignSpec, *, machine: Machine | None = None, read: Read | None = None
) -> tuple[CheckResult, ...]:
    """Everything about one server start that its settings, the models' files and this machine can show.

    Parameters
    ----------
    machine
        What would serve; this machine when left out.
    read
        From `reader`; shared between starts so that each model folder is read once.

    Returns
    -------
    tuple of CheckResult
        Empty when nothing was found. What could not be checked is among them, as a note.
    """
    case = StartCase(start, campaign, machine or this_machine(), read or reader())
    found = (result for check in CAMPAIGN_CHECKS + START_CHECKS for result in check(case))
    return tuple(dict.fromkeys(found))
