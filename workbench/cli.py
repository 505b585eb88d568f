"""The command line: parses and calls, no logic.

Exit codes: 0 success; 1 the command worked and its answer is bad news (a certain fault, a failed check, a report that
did not finish, runs of a campaign that are missing); 2 wrong usage; 3 input that cannot be used (a log that cannot be
read, or with nothing to judge) or a place that cannot be written; 4 a notebook failed; 5 something must be installed
first; 6 no server answers where one should; 130 interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from workbench import __version__, terminal
from workbench.errors import InputError, UsageError, WorkbenchError
from workbench.terminal import complain, say

_DRAFT_OPTIONS = ("target", "speculative_algorithm", "context_length", "sglang_version", "tp_size")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error of ours becomes a message on standard error."""
    terminal.prepare()
    arguments = _parser().parse_args(argv)
    try:
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


def _report(arguments: argparse.Namespace) -> int:
    from workbench import reports

    if arguments.list:
        for line in reports.list_pages(campaigns=arguments.campaign, notebooks=arguments.notebook):
            say(line)
        return 0
    outcome = reports.build(
        campaigns=arguments.campaign,
        notebooks=arguments.notebook,
        workers=arguments.workers,
        force=arguments.force,
        say=complain,
    )
    say(f"{outcome.summary}\n{outcome.index}")
    return 0 if outcome.all_ok else 1


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
    )
    if arguments.dry_run:
        say(run.dry_run(request))
        return 0
    outcome = run.run(request, terminal.Lines(quiet=arguments.quiet))
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


def _given(text: str) -> str:
    """A value that is there: an empty one is a shell variable that was not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="workbench",
        description="Is this EAGLE-3 deployment right, does speculation pay, and what would make it pay?",
        epilog="Exit codes: 0 good, 1 bad news, 2 wrong usage, 3 unusable input, 4 a notebook failed, 5 missing tool, "
        "6 no server, 130 interrupted",
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

    report = commands.add_parser("report", help="build the pages of campaigns and the index")
    report.add_argument("--campaign", action="append", metavar="NAME", help="only this campaign (may be repeated)")
    report.add_argument("--notebook", action="append", metavar="NAME", help="only this notebook (may be repeated)")
    report.add_argument("--workers", type=_positive, default=2, metavar="N", help="notebooks at a time (default: 2)")
    report.add_argument("--list", action="store_true", help="list the campaigns and their pages, build nothing")
    report.add_argument("--force", action="store_true", help="build again also what has not changed")
    report.set_defaults(call=_report)

    run = commands.add_parser("run", help="measure a campaign: start servers, drive loads, leave run folders")
    run.add_argument("campaign", metavar="CAMPAIGN", help="name in data/campaigns, or path of a campaign file")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the file; may be repeated")
    run.add_argument("--engine", choices=("reference", "sglang"), help="serve with this one instead of the file's")
    run.add_argument("--attach", type=_given, metavar="URL", help="measure a server that runs already, and leave it")
    run.add_argument("--log", type=_given, metavar="FILE", help="with --attach: the log that this server writes")
    run.add_argument("--force", action="store_true", help="measure again what is measured already")
    run.add_argument("--allow-refused", action="store_true", help="start also what preflight refuses, as a control")
    run.add_argument("--quiet", action="store_true", help="say nothing until the end")
    run.add_argument("--dry-run", action="store_true", help="print starts, command lines and cost, start nothing")
    run.set_defaults(call=_run)

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

    doctor = commands.add_parser("doctor", help="what this machine can run, and what is missing")
    doctor.set_defaults(call=_doctor)
    return parser
