"""Checks beside the runs of a campaign: one of its servers is started and checked, the result goes into ``_checks``.

    python tools/beside.py CAMPAIGN START [--set KEY=VALUE ...] CHECK [CHECK ...]

START is the name of a server start as `workbench run --dry-run` prints it. CHECK is cross-check (our client and
sglang.bench_serving in turn), profile (where a step's time goes) or count-experts (distinct experts by tokens of a
pass; needs tools/kimi_shape/hook on PYTHONPATH; a start of its own, since counting takes time). The files are read by
the pages of the campaign, and recorded with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workbench.chat import load_chat
from workbench.errors import UsageError, WorkbenchError
from workbench.launch.argv import server_argv, server_env
from workbench.launch.places import claim, reserved_port
from workbench.launch.process import serve
from workbench.load import drive
from workbench.paths import runs_dir
from workbench.prompts import prompt_set, with_token_ids
from workbench.spec import Workload
from workbench.sweep import CampaignSpec, Start, expand, find_campaign

TOOLS = Path(__file__).resolve().parent
CROSS_CHECK, PROFILE, COUNT_EXPERTS = "cross-check", "profile", "count-experts"
READY_S = 300.0
LOADS = (1, 8, 32)
COUNTS_WRITTEN_S = 5.0  # the hook writes every two seconds


@dataclass(frozen=True)
class Beside:
    campaign: CampaignSpec
    start: Start
    out: Path

    @property
    def model(self) -> Path:
        return Path(str(self.campaign.target.model_path))


def main() -> int:
    asked = _arguments()
    try:
        return _checked(asked)
    except WorkbenchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _checked(asked: argparse.Namespace) -> int:
    campaign = find_campaign(asked.campaign, [*asked.set, f'only=["{asked.start}"]'])
    found = [start for start in expand(campaign).starts if start.server_id == asked.start]
    if not found:
        sys.stderr.write(f"no start {asked.start!r}; `workbench run {asked.campaign} --dry-run` names them\n")
        return 2
    beside = Beside(campaign, found[0], runs_dir() / campaign.name / "_checks")
    if not (beside.out.parent / "campaign.json").is_file():
        # Checks alone are no campaign that a page could be made of.
        raise UsageError(
            "nothing of this campaign is measured yet",
            where=beside.out.parent,
            next_step=f"workbench run {campaign.name}, then this",
        )
    beside.out.mkdir(exist_ok=True)
    at_one_server = [check for check in asked.checks if check != COUNT_EXPERTS]
    if at_one_server:
        with served(beside, {}) as url:
            for check in at_one_server:
                run_tool(check, url, beside)
    if COUNT_EXPERTS in asked.checks:
        count_experts(beside)
    return 0


@contextmanager
def served(beside: Beside, env: dict[str, str]) -> Iterator[str]:
    campaign, start = beside.campaign, beside.start
    with claim(start.server.tp_size * start.server.dp_size) as gpus, reserved_port() as port:
        url = f"http://127.0.0.1:{port}"
        with serve(
            server_argv(start, campaign, port=port),
            env=server_env(start, version=campaign.sglang_version) | env,
            log=beside.out / f"{start.server_id}.log",
            url=url,
            ready_timeout_s=READY_S,
            gpus=gpus,
            on_phase=lambda phase: print("   ", phase, flush=True),  # noqa: T201
        ):
            yield url


def run_tool(check: str, url: str, beside: Beside) -> None:
    target = ["--target", str(beside.model)]
    if check == CROSS_CHECK:
        # Passes of several seconds at 8 at once too.
        more = ["--passes", "4", "--num-prompts", "24", "--prompts-per-slot", "12"]
        command = [str(TOOLS / "cross_check.py"), url, *target, "--out", str(beside.out / "cross_check.json"), *more]
    else:
        traces = ["--trace-dir", str(beside.out / "traces")]
        command = [
            str(TOOLS / "step_profile.py"),
            url,
            *target,
            "--out",
            str(beside.out / "step_profile.json"),
            *traces,
        ]
    subprocess.run([sys.executable, *command], check=True)


def count_experts(beside: Beside) -> None:
    """With the router of the campaign's runs, and with the model's own."""
    chat = load_chat(beside.model)
    prompts = with_token_ids(
        prompt_set("mixed").prompts[: max(LOADS)], lambda text: chat.prompt_ids([{"role": "user", "content": text}])
    )
    found: dict[str, object] = {}
    for name, noise in (("noise", "1"), ("plain", "0")):
        counts = beside.out / f"router-{name}.counts"
        with served(beside, {"ROUTER_NOISE": noise, "ROUTER_COUNTS": str(counts)}) as url:
            for load in LOADS:
                few = prompts[: max(load, 4)]
                options = {"prompt_set": "mixed", "temperature": 0, "max_new_tokens": 48, "ignore_eos": True}
                drive(url, few, Workload(num_prompts=len(few), max_concurrency=load, **options))
            time.sleep(COUNTS_WRITTEN_S)
            found[name] = json.loads(counts.read_text(encoding="utf-8"))
        counts.unlink()
        (beside.out / "router.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign")
    parser.add_argument("start")
    parser.add_argument("checks", nargs="+", choices=(CROSS_CHECK, PROFILE, COUNT_EXPERTS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
