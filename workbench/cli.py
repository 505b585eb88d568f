"""The command line: parses and calls, no logic.

Exit codes: 0 success; 1 the command worked and its answer is bad news (a certain fault, a failed check, a report that
did not finish, runs of a campaign that are missing); 2 wrong usage; 3 input that cannot be used (a log that cannot be
read, or with nothing to judge) or a place that cannot be written, and where asked for (``report --fail-on-regression``)
a run that got worse since it was last good; 4 a notebook failed; 5 something must be installed
first; 6 no server answers where one should; 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from workbench import __version__, terminal
from workbench.errors import InputError, UsageError, WorkbenchError
from workbench.paths import check_stated_root
from workbench.specforge import arguments as specforge
from workbench.terminal import complain, say

_DRAFT_OPTIONS = ("target", "speculative_algorithm", "context_length", "sglang_version", "tp_size")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error of ours becomes a message on standard error."""
    terminal.prepare()
    arguments = _parser().parse_args(argv)
    try:
        check_stated_root()
        code = int(arguments.call(arguments))
        terminal.flush()
        return code
    except WorkbenchError as error:
        complain(f"workbench: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        complain("workbench: interrupted")
        return 130
    except BrokenPipeError:
        # head or less has seen enough.
        return 0
    except OSError as error:
        what = f"{error.strerror or error}\n  -> check the path, its permissions and the space left"
        complain(f"workbench: {f'{error.filename}: ' if error.filename else ''}{what}")
        return InputError.exit_code
    finally:
        terminal.settle()


# --- commands ----------------------------------------------------------------------------------------------------


def _diagnose(arguments: argparse.Namespace) -> int:
    from workbench import diagnose

    outcome = diagnose.diagnose_files(
        arguments.log, baseline=arguments.baseline, draft=arguments.draft, target=arguments.target
    )
    say(diagnose.render(outcome, all_figures=arguments.all), bold_first_line=True)
    if arguments.page is not None:
        say(f"page: {diagnose.write_page(outcome, arguments.page)}")
    return outcome.exit_code


def _parse(arguments: argparse.Namespace) -> int:
    from workbench.table.parse_logs import parse_logs

    report = parse_logs(arguments.log, how=arguments.format, out=arguments.out)
    terminal.flush()
    for line in report.lines:
        complain(line)
    return report.exit_code


def _import(arguments: argparse.Namespace) -> int:
    from workbench import importing

    names = importing.Stated.__dataclass_fields__
    stated = importing.Stated(**{name: getattr(arguments, name) for name in names})
    name = arguments.campaign or "--"  # argparse before Python 3.13 makes an empty list of --campaign=--
    outcome = importing.import_files(importing.Request(tuple(arguments.file), name, stated), complain)
    say(outcome.text)
    return outcome.exit_code


def _report(arguments: argparse.Namespace) -> int:
    from workbench import reports
    from workbench.nightly import REGRESSION_EXIT_CODE

    if arguments.list:
        for line in reports.list_pages(campaigns=arguments.campaign, notebooks=arguments.notebook):
            say(line)
        return 0
    if arguments.all and arguments.campaign:
        raise UsageError("all campaigns, or those that are named", where="--all", next_step="leave out one of the two")
    outcome = reports.build(
        campaigns=arguments.campaign,
        notebooks=arguments.notebook,
        workers=arguments.workers,
        force=arguments.force,
        say=complain,
    )
    for line in (*(outcome.overview if arguments.all else ()), *outcome.worse):
        say(line)
    say(f"{outcome.summary}\n{outcome.index}")
    if outcome.worse and arguments.fail_on_regression:
        return REGRESSION_EXIT_CODE
    return 0 if outcome.all_ok else 1


def _publish(arguments: argparse.Namespace) -> int:
    from workbench.publish import publish

    say(publish(arguments.to, campaigns=arguments.campaign or ()).text)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from workbench import run

    request = run.Request(
        arguments.campaign,
        tuple(arguments.set),
        engine=arguments.engine,
        force=arguments.force,
        allow_refused=arguments.allow_refused,
        attach=arguments.attach or "",
        log=arguments.log or "",
        places=arguments.places,
        interference=arguments.interference,
        executor=arguments.executor,
        ray_address=arguments.ray_address or "",
    )
    if arguments.dry_run:
        say(run.dry_run(request))
        return 0
    outcome = run.run(request, terminal.Lines(quiet=arguments.quiet))
    say(outcome.text)
    return outcome.exit_code


def _tune(arguments: argparse.Namespace) -> int:
    from workbench.tune import drive

    request = drive.Request(
        arguments.campaign,
        tuple(arguments.set),
        engine=arguments.engine,
        budget_minutes=arguments.budget_minutes,
        budget_share=arguments.budget_share,
    )
    if arguments.dry_run:
        say(drive.dry_run(request))
        return 0
    outcome = drive.tune(request, terminal.Lines(quiet=arguments.quiet))
    say(outcome.text)
    return outcome.exit_code


def _check(arguments: argparse.Namespace) -> int:
    from workbench import check

    if check.is_campaign(arguments.what):
        _refuse(arguments, _DRAFT_OPTIONS, "goes with a draft folder, and this is a campaign")
        text, has_errors = check.campaign_text(arguments.what, arguments.set)
        say(text)
        return int(has_errors)
    _refuse(arguments, ("set",), "goes with a campaign, and this is a draft folder")
    results = check.check_files(
        Path(arguments.what),
        target=arguments.target,
        algorithm=arguments.speculative_algorithm,
        context_length=arguments.context_length,
        version=arguments.sglang_version,
        tp_size=arguments.tp_size,
    )
    say(check.render_checks(results))
    return 1 if any(result.severity == "error" for result in results) else 0


def _refuse(arguments: argparse.Namespace, options: Sequence[str], why: str) -> None:
    """Options that would be ignored are said to be wrong."""
    for option in options:
        if getattr(arguments, option):
            raise UsageError(
                f"this option {why}", where=f"--{option.replace('_', '-')}", next_step="see workbench check --help"
            )


def _train(arguments: argparse.Namespace) -> int:
    from workbench import train

    request = train.Request(
        arguments.config,
        tuple(arguments.set),
        resume=arguments.resume,
        jobs=arguments.jobs,
        serve=arguments.serve,
        page=arguments.page,
        allow_refused=arguments.allow_refused,
    )
    if arguments.list:
        say(train.listed(request))
        return 0
    outcome = train.train(request, terminal.Lines(quiet=arguments.quiet))
    if outcome.text:
        say(outcome.text)
    return outcome.exit_code


def _evaluate(arguments: argparse.Namespace) -> int:
    from workbench.training.needs import check_torch

    check_torch()
    from workbench.training import offline

    request = offline.Request(
        arguments.draft,
        arguments.target,
        corpus=arguments.answers,
        prompts=arguments.prompts,
        served=arguments.served,
        limit=arguments.limit,
        max_new_tokens=arguments.max_new_tokens,
        held_out=arguments.held_out,
        split_seed=arguments.split_seed,
        steps=arguments.steps,
        seed=arguments.seed,
        device=arguments.device,
        dtype=arguments.dtype,
    )
    lines = terminal.Lines(quiet=arguments.quiet)
    figures = offline.evaluate_draft(request, lines.overwrite)
    lines.clear()
    say(offline.text(figures))
    if arguments.out is not None:
        offline.write(figures, arguments.out)
    return 0


def _prompts_build(arguments: argparse.Namespace) -> int:
    from workbench.paths import prompts_dir
    from workbench.training import mix

    out = arguments.out or prompts_dir() / f"{mix.NAME}.jsonl.gz"
    counts = mix.build(
        out,
        files=arguments.file,
        wheels=arguments.wheels,
        per_task=arguments.per_task,
        any_language=arguments.any_language,
    )
    say("\n".join([f"{out}: {counts.lines()[0]}", *counts.lines()[1:]]))
    return 0


def _prompts_held_out(arguments: argparse.Namespace) -> int:
    from workbench.training.held_out import write_held_out

    say(write_held_out(arguments.set, arguments.out, held_out=arguments.held_out, seed=arguments.split_seed))
    return 0


def _answers(arguments: argparse.Namespace) -> int:
    from workbench.training import answers

    names = answers.Order.__dataclass_fields__
    order = answers.Order(**{name: getattr(arguments, name) for name in names})
    say(answers.make_answers(order, terminal.Lines(quiet=arguments.quiet)))
    return 0


def _lab(arguments: argparse.Namespace) -> int:
    from workbench import lab

    return lab.start(port=arguments.port, browser=not arguments.no_browser)


def _doctor(_: argparse.Namespace) -> int:
    from workbench import doctor

    say(doctor.examine())
    return 0


# --- arguments ---------------------------------------------------------------------------------------------------


def _positive(text: str) -> int:
    """A whole number from 1; argparse makes the message."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _amount(text: str) -> float:
    """A number from 0; ``nan`` would be no limit, and above none."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number from 0")
    return value


def _share(text: str) -> float:
    """A part of a whole; 25 would be meant as percent."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share between 0 and 1")
    return value


def _given(text: str) -> str:
    """A value that is there: an empty one is a shell variable that was not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="workbench",
        description="Is this EAGLE-3 deployment right, does speculation pay, and what would make it pay?",
        epilog="Exit codes: 0 good, 1 bad news, 2 wrong usage, 3 unusable input or a regression, "
        "4 a notebook failed, 5 missing tool, 6 no server, 130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    diagnose = commands.add_parser("diagnose", help="verdict, evidence and next action for one server log")
    diagnose.add_argument("log", metavar="LOG", help="server log (.gz too, - for standard input)")
    diagnose.add_argument("--baseline", metavar="LOG", help="log of the same server without speculation")
    diagnose.add_argument("--draft", type=Path, metavar="DIR", help="draft checkpoint, checked against --target")
    diagnose.add_argument("--target", type=Path, metavar="DIR", help="target checkpoint (config.json is enough)")
    diagnose.add_argument("--all", action="store_true", help="print every figure, not only the most useful ones")
    diagnose.add_argument(
        "--page", nargs="?", const="", metavar="FILE", help="also write a page: FILE.html, a folder, or into reports/"
    )
    diagnose.set_defaults(call=_diagnose)

    parse = commands.add_parser("parse", help="decode lines of any SGLang or vLLM log as a table")
    parse.add_argument("log", nargs="+", metavar="LOG", help="server log (.gz too, - for standard input)")
    parse.add_argument(
        "--format", choices=("table", "csv", "parquet", "json"), default="table", help="json is an object a line"
    )
    parse.add_argument("--out", type=Path, metavar="FILE", help="write here instead of standard output")
    parse.set_defaults(call=_parse)

    imported = commands.add_parser("import", help="results and logs of other tools as runs of a campaign")
    imported.add_argument("file", nargs="+", type=Path, metavar="FILE", help="result file or server log (.gz too)")
    imported.add_argument("--campaign", type=_given, required=True, metavar="NAME", help="in data/runs; new or not")
    arm = imported.add_mutually_exclusive_group()
    arm.add_argument(
        "--baseline",
        dest="speculative",
        action="store_const",
        const=False,
        help="what does not tell was measured without a drafter",
    )
    arm.add_argument(
        "--speculative", action="store_const", const=True, help="what does not tell was measured with a drafter"
    )
    imported.add_argument("--target", type=_given, metavar="NAME", help="model of the files that do not tell it")
    imported.add_argument("--prompts", type=_given, metavar="NAME", help="prompts of the files that do not tell them")
    imported.add_argument(
        "--concurrency", type=_positive, metavar="N", help="requests at once of the files that do not tell it"
    )
    imported.add_argument("--machine", type=_given, metavar="TEXT", help="machine in words; no file tells it")
    imported.set_defaults(call=_import)

    report = commands.add_parser("report", help="build the pages of campaigns and the index")
    report.add_argument("--campaign", action="append", metavar="NAME", help="only this campaign (may be repeated)")
    report.add_argument("--all", action="store_true", help="every campaign, as without names, and a line on each")
    report.add_argument("--notebook", action="append", metavar="NAME", help="only this notebook (may be repeated)")
    report.add_argument("--workers", type=_positive, default=2, metavar="N", help="notebooks at a time (default: 2)")
    report.add_argument("--list", action="store_true", help="list the campaigns and their pages, build nothing")
    report.add_argument("--force", action="store_true", help="build again also what has not changed")
    report.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="exit 3 when a run got worse, beyond noise, since it was last good",
    )
    report.set_defaults(call=_report)

    publish = commands.add_parser("publish", help="the pages as a folder or a zip to pass on or put on a web server")
    publish.add_argument("to", type=Path, metavar="DIR|FILE.zip", help="new folder, earlier publication, or zip file")
    publish.add_argument("--campaign", action="append", metavar="NAME", help="only its pages (may be repeated)")
    publish.set_defaults(call=_publish)

    run = commands.add_parser("run", help="measure a campaign: start servers, drive loads, leave run folders")
    run.add_argument("campaign", metavar="CAMPAIGN", help="name in data/campaigns, or path of a campaign file")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the file; may be repeated")
    run.add_argument("--engine", choices=("reference", "sglang"), help="serve with this one instead of the file's")
    run.add_argument("--attach", type=_given, metavar="URL", help="measure a server that runs already, and leave it")
    run.add_argument("--log", type=_given, metavar="FILE", help="with --attach: the log that this server writes")
    run.add_argument("--places", type=_positive, metavar="N", help="measure so many starts side by side")
    run.add_argument(
        "--interference", action="store_true", help="with places: measure a start alone, too, and say what that costs"
    )
    run.add_argument("--executor", choices=("local", "ray"), default="local", help="ray: on the nodes of a cluster")
    run.add_argument(
        "--ray-address", type=_given, metavar="ADDR", help="with ray: HOST:PORT or auto; without it one is started here"
    )
    run.add_argument("--force", action="store_true", help="measure again what is measured already")
    run.add_argument("--allow-refused", action="store_true", help="start also what preflight refuses, as a control")
    run.add_argument("--quiet", action="store_true", help="say nothing until the end")
    run.add_argument("--dry-run", action="store_true", help="print starts, command lines and cost, start nothing")
    run.set_defaults(call=_run)

    tune = commands.add_parser("tune", help="the best configuration of a campaign's sweep in few GPU minutes")
    tune.add_argument("campaign", metavar="CAMPAIGN", help="name in data/campaigns, or path of a campaign file")
    tune.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change the file; may be repeated"
    )
    tune.add_argument("--engine", choices=("reference", "sglang"), help="serve with this one instead of the file's")
    tune.add_argument(
        "--budget-minutes", type=_amount, metavar="N", help="GPU minutes in all, what is measured already included"
    )
    tune.add_argument(
        "--budget-share", type=_share, metavar="S", help="the same as a share of what the full grid would take, as 0.25"
    )
    tune.add_argument("--quiet", action="store_true", help="say nothing until the end")
    tune.add_argument("--dry-run", action="store_true", help="print what would be measured first, start nothing")
    tune.set_defaults(call=_tune)

    check = commands.add_parser("check", help="check a campaign, or a draft checkpoint, before a GPU is used")
    check.add_argument("what", metavar="CAMPAIGN|DRAFT_DIR", help="campaign (file, or name in data/campaigns) or draft")
    check.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change the campaign, as for run"
    )
    check.add_argument("--target", type=Path, metavar="DIR", help="target checkpoint (config.json is enough)")
    check.add_argument("--speculative-algorithm", metavar="NAME", help="the flag that will be used, such as EAGLE3")
    check.add_argument("--context-length", type=_positive, metavar="N", help="context length that will be served")
    check.add_argument("--sglang-version", metavar="V", help="SGLang version that will serve it")
    check.add_argument("--tp-size", type=_positive, metavar="N", help="GPUs of a tensor parallel group")
    check.set_defaults(call=_check)

    prompts = commands.add_parser("prompts", help="make a set of prompts to train on")
    of_prompts = prompts.add_subparsers(required=True, metavar="build|held-out")
    build = of_prompts.add_parser(
        "build", help="the default mix from its packages, or one of your files: cleaned, and apart from held-out sets"
    )
    build.add_argument("--out", type=Path, metavar="FILE", help=".jsonl or .jsonl.gz (default: in data/prompts)")
    build.add_argument(
        "--file", type=Path, action="append", default=[], metavar="FILE", help="instead of the mix; may be repeated"
    )
    build.add_argument("--wheels", type=Path, metavar="DIR", help="folder with the packages, instead of downloading")
    build.add_argument("--per-task", type=_positive, metavar="N", help="at most N prompts of a task")
    build.add_argument("--any-language", action="store_true", help="keep prompts that are not English, too")
    build.set_defaults(call=_prompts_build)
    held = of_prompts.add_parser("held-out", help="the prompts that training holds out of a set, as a set to serve")
    held.add_argument(
        "set", type=_given, metavar="SET", help="prompt set, or a .jsonl file, that the corpus is made of"
    )
    held.add_argument("--out", type=Path, required=True, metavar="FILE", help=".jsonl file; the new set is called so")
    held.add_argument("--held-out", type=_positive, default=128, metavar="N", help="as in the training config (128)")
    held.add_argument("--split-seed", type=int, default=0, metavar="N", help="as in the training config (0)")
    held.set_defaults(call=_prompts_held_out)

    answers = commands.add_parser("answers", help="make a corpus to train on: a target's answers to prompts")
    answers.add_argument("--target", type=_given, required=True, metavar="DIR", help="target checkpoint")
    answers.add_argument("--prompts", type=_given, required=True, metavar="SET", help="prompt set, or a .jsonl file")
    answers.add_argument("--out", type=Path, required=True, metavar="CORPUS", help="folder; one begun is gone on with")
    answers.add_argument(
        "--url",
        type=_given,
        action="append",
        default=[],
        metavar="URL",
        help="ask this server instead of starting one; given twice, two share the prompts",
    )
    answers.add_argument("--engine", choices=("sglang", "reference"), default="sglang", help="what is started")
    answers.add_argument(
        "--server-like", type=_given, metavar="CAMPAIGN", help="start it with the server settings of this campaign"
    )
    answers.add_argument("--temperature", type=_amount, default=0.7, metavar="T", help="default: 0.7; 0 is greedy")
    answers.add_argument("--top-p", type=_amount, default=0.95, metavar="P", help="default: 0.95")
    answers.add_argument("--max-new-tokens", type=_positive, default=256, metavar="N", help="default: 256")
    answers.add_argument("--answers-per-prompt", type=_positive, default=1, metavar="N", help="may be raised later")
    answers.add_argument("--concurrency", type=_positive, default=256, metavar="N", help="default: 256")
    answers.add_argument("--limit", type=_positive, metavar="N", help="only the first N prompts")
    answers.add_argument("--seed", type=int, default=0, metavar="N", help="of the sampling")
    answers.add_argument("--min-response-tokens", type=int, metavar="N", help="filter (24; greedy: none)")
    answers.add_argument("--min-distinct-4", type=_amount, metavar="X", help="filter of repetition (0.5; greedy: none)")
    answers.add_argument("--timeout-s", type=_amount, default=600.0, metavar="S", help="of one request (default: 600)")
    answers.add_argument("--quiet", action="store_true", help="say nothing until the end")
    answers.set_defaults(call=_answers)

    train = commands.add_parser("train", help="train an EAGLE-3 drafter on a corpus of its target's answers")
    train.add_argument("config", type=Path, metavar="CONFIG", help="YAML file, see docs/training-a-drafter.md")
    train.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key; may be repeated")
    train.add_argument("--resume", action="store_true", help="go on with a run that was broken off, if there is one")
    train.add_argument("--jobs", type=_positive, default=1, metavar="N", help="drafters of a study at a time, by GPU")
    train.add_argument("--list", action="store_true", help="list the drafters of a study and how far each is")
    train.add_argument("--serve", type=_given, metavar="CAMPAIGN", help="then evaluate, serve and record the drafter")
    train.add_argument("--allow-refused", action="store_true", help="serve also what preflight refuses")
    train.add_argument("--page", action="store_true", help="also make a page with the learning curves")
    train.add_argument("--quiet", action="store_true", help="say nothing")
    train.set_defaults(call=_train)

    evaluate = commands.add_parser("evaluate", help="accept length of a draft for every number of steps, no server")
    evaluate.add_argument("draft", type=Path, metavar="DRAFT_DIR", help="draft checkpoint")
    evaluate.add_argument("--target", type=_given, required=True, metavar="DIR", help="target checkpoint")
    evaluate.add_argument("--answers", type=Path, metavar="CORPUS", help="walk along the answers of a corpus")
    evaluate.add_argument("--prompts", type=_given, metavar="SET", help="let the target answer these prompts greedily")
    evaluate.add_argument("--served", type=Path, metavar="RUN_DIR", help="walk along the answers of a served run")
    evaluate.add_argument("--limit", type=_positive, metavar="N", help="only the first N prompts")
    evaluate.add_argument(
        "--max-new-tokens", type=_positive, metavar="N", help="of an answer to --prompts (default: 256)"
    )
    evaluate.add_argument("--held-out", type=_positive, metavar="N", help="only what training with this key holds out")
    evaluate.add_argument("--split-seed", type=int, default=0, metavar="N", help="as in the training config")
    evaluate.add_argument("--steps", type=_positive, default=7, metavar="N", help="most drafts a round (default: 7)")
    evaluate.add_argument("--seed", type=int, default=0, metavar="N", help="of the intervals")
    evaluate.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    evaluate.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    evaluate.add_argument("--out", type=Path, metavar="FILE", help="also write all figures as JSON")
    evaluate.add_argument("--quiet", action="store_true", help="say nothing until the end")
    evaluate.set_defaults(call=_evaluate)

    specforge.add_command(commands)

    lab = commands.add_parser("lab", help="JupyterLab on this machine's loopback address, with the notebooks ready")
    lab.add_argument("--port", type=_positive, metavar="N", help="port to listen on (default: 8888, or the next free)")
    lab.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
    lab.set_defaults(call=_lab)

    doctor = commands.add_parser("doctor", help="what this machine can run, and what is missing")
    doctor.set_defaults(call=_doctor)
    return parser
