"""How the runs of a campaign were measured, in the words of the rules."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.wording import count, few, number

NOT_STATED = "not stated"
_SPEEDS = (
    ("decode_tok_per_s", "decode speed (while all slots are busy)"),
    ("output_tok_per_s", "output speed (all tokens over all time)"),
    ("log_median_tok_per_s", "median decode line of the log"),
)
_SOURCES = {
    "requests": "from the requests",
    "counters": "from the server's counters",
    "log": "from the log's decode lines",
    "reported": "as reported with the figures",
}


def measured_facts(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Label and text of each line of the box "How this was measured"; what nobody stated is said to be not stated."""
    if runs.empty:
        return []
    return [
        ("Engine", _engine(runs)),
        ("Machine", _values(runs["machine"])),
        ("Number format", f"{_values(runs['dtype'])}; tensor parallel {_values(runs['tp_size'])}"),
        ("Prompts", f"{_values(runs['prompt_set'])}; concurrency {_values(runs['max_concurrency'])}"),
        ("Answers", _answers(runs)),
        ("Passes", _passes(runs)),
        ("Speed", _speeds(runs)),
        ("Accept length", _accept_lengths(runs)),
        ("Origin", _counted(runs["origin"])),
        ("Made", _when(runs["recorded_at"])),
    ]


def _engine(runs: pd.DataFrame) -> str:
    versions = runs["sglang_version"].dropna()
    version = f" {_values(versions)}" if len(versions) else ", version not stated"
    return f"{_values(runs['engine'])}{version}"


def _answers(runs: pd.DataFrame) -> str:
    ends = {True: "always to the limit (ignore_eos)", False: "to their own end or the limit"}
    on = {ends[bool(value)] for value in runs["ignore_eos"].dropna().unique()}
    how = "; ".join(sorted(on)) or f"ending {NOT_STATED}"
    return f"temperature {_values(runs['temperature'])}; {_limit(runs)}, {how}"


def _limit(runs: pd.DataFrame) -> str:
    known = runs["max_new_tokens"].notna().any()
    return f"at most {_values(runs['max_new_tokens'])} tokens" if known else f"limit {NOT_STATED}"


def _passes(runs: pd.DataFrame) -> str:
    known = runs["num_requests"].dropna()
    if known.empty:
        return "how many requests and passes is not stated"
    failed = int(runs["num_failed"].fillna(0).sum())
    passes = f"{_values(runs['repeats'])} over the prompts; " if runs["repeats"].notna().any() else ""
    return f"{passes}{count(int(known.sum()), 'finished request')}, {failed:,} failed (counted, never averaged)"


def _speeds(runs: pd.DataFrame) -> str:
    known = [f"{words}: {_share(runs[column].notna())}" for column, words in _SPEEDS if runs[column].notna().any()]
    return "; ".join(known) or "not measured"


def _accept_lengths(runs: pd.DataFrame) -> str:
    sources = runs["accept_length_source"].dropna().value_counts().sort_index()
    said = [f"{_SOURCES.get(str(source), str(source))}: {count(int(n), 'run')}" for source, n in sources.items()]
    return "; ".join(said) or "not measured"


def _share(mask: pd.Series) -> str:
    return f"{int(mask.sum())} of {count(len(mask), 'run')}"


def _counted(values: pd.Series) -> str:
    found = values.dropna().value_counts().sort_index()
    return ", ".join(f"{count(int(n), 'run')} {value}" for value, n in found.items()) or NOT_STATED


def _values(values: pd.Series) -> str:
    """The values there are, a few of them, in order; which are missing is not hidden."""
    found = sorted(values.dropna().unique().tolist())
    texts = [_text(value) for value in found]
    missing = values.isna().any() or not len(values)
    if not texts:
        return NOT_STATED
    return f"{few(texts)}{' (not stated of every run)' if missing else ''}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return number(value) if value % 1 else f"{value:g}"
    return str(value)


def _when(times: pd.Series) -> str:
    days = sorted({str(time)[:10] for time in times.dropna()})
    if not days:
        return NOT_STATED
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
