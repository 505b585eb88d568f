from __future__ import annotations

import pandas as pd

from workbench.analysis.views import measured_facts
from workbench.table.columns import TABLES

COLUMNS = [column.name for column in TABLES["runs"]]


def runs(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([dict.fromkeys(COLUMNS) | row for row in rows])


KNOWN: dict[str, object] = {
    "engine": "sglang",
    "sglang_version": "0.5.14",
    "machine": "one H200",
    "dtype": "bfloat16",
    "tp_size": 1,
    "prompt_set": "mt_bench",
    "temperature": 0.0,
    "max_new_tokens": 256,
    "ignore_eos": False,
    "max_concurrency": 8,
    "num_requests": 40,
    "num_failed": 2,
    "repeats": 5,
    "accept_length_source": "requests",
    "output_tok_per_s": 90.0,
    "decode_tok_per_s": 100.0,
    "origin": "recorded",
    "recorded_at": "2026-11-29T10:00:00",
}


def test_what_was_measured_is_said_in_the_words_of_the_rules() -> None:
    more = {"max_concurrency": 1, "accept_length_source": "log", "decode_tok_per_s": None, "recorded_at": "2026-11-30"}
    facts = dict(measured_facts(runs(KNOWN, KNOWN | more)))
    assert facts == {
        "Engine": "sglang 0.5.14",
        "Machine": "one H200",
        "Number format": "bfloat16; tensor parallel 1",
        "Prompts": "mt_bench; concurrency 1 and 8",
        "Answers": "temperature 0; at most 256 tokens, to their own end or the limit",
        "Passes": "5 over the prompts; 80 finished requests, 4 failed (counted, never averaged)",
        "Speed": "decode speed (while all slots are busy): 1 of 2 runs; "
        "output speed (all tokens over all time): 2 of 2 runs",
        "Accept length": "from the log's decode lines: 1 run; from the requests: 1 run",
        "Origin": "2 runs recorded",
        "Made": "2026-11-29 to 2026-11-30",
    }


def test_what_nobody_stated_is_said_to_be_not_stated() -> None:
    facts = dict(
        measured_facts(runs({"engine": "sglang"}, {"engine": "sglang", "temperature": 0.7, "ignore_eos": True}))
    )
    assert facts["Engine"] == "sglang, version not stated"
    assert facts["Answers"] == (
        "temperature 0.70 (not stated of every run); limit not stated, always to the limit (ignore_eos)"
    )
    assert facts["Passes"] == "how many requests and passes is not stated"
    assert (facts["Speed"], facts["Accept length"]) == ("not measured", "not measured")
    assert (facts["Machine"], facts["Origin"], facts["Made"]) == ("not stated",) * 3


def test_without_runs_there_is_nothing_to_say() -> None:
    assert measured_facts(runs().reindex(columns=COLUMNS)) == []
