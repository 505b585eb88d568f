from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.preflight import Severity


def test_loads_above_the_limit_queue(campaigns) -> None:
    found = campaigns(server={"max_running_requests": 4})["queueing"]
    assert found.severity is Severity.WARNING
    assert found.what == "of 8 requests at once only 4 run, the others wait"
    assert "raise max_running_requests to 8" in found.next_step
    assert "queueing" not in campaigns(server={"max_running_requests": None})
    assert campaigns(server={"flags": {"max-running-requests": 2}})["queueing"].what.endswith(
        "only 2 run, the others wait"
    )


def test_the_embedded_engine_runs_one(campaigns) -> None:
    assert campaigns(engine="reference")["queueing"].next_step == "measure concurrency 1 on the embedded engine"
    assert "queueing" not in campaigns(engine="reference", max_concurrency=1)


@pytest.mark.parametrize(
    ("server", "fires"),
    [
        ({"cuda_graph_max_bs_decode": 4}, True),
        ({"cuda_graph_max_bs_decode": 8}, False),
        ({"cuda_graph_max_bs_decode": 4, "dp_size": 2}, False),
        ({"cuda_graph_max_bs_decode": 4, "cuda_graph": False}, False),
        ({"flags": {"cuda-graph-bs": "1 2 4"}}, True),
        ({"flags": {"cuda-graph-bs": "1,2,4,8"}}, False),
        ({"flags": {"cuda-graph-max-bs": 2}}, True),
        # A superscript is a digit to str.isdigit and no number to int.
        ({"flags": {"cuda-graph-bs": "²"}}, False),
        ({"flags": {"cuda-graph-bs": "² 4"}}, True),
        # What waits in the queue is in no batch.
        ({"cuda_graph_max_bs_decode": 4, "max_running_requests": 4}, False),
        ({}, False),
    ],
)
def test_batches_above_the_largest_graph(campaigns, server: dict[str, Any], fires: bool) -> None:
    assert ("graph-limit" in campaigns(server=server)) is fires


def test_the_memory_fraction_is_to_be_stated(campaigns) -> None:
    assert campaigns(server={"mem_fraction_static": None})["memory-fraction"].severity is Severity.WARNING
    for stated in ({}, {"mem_fraction_static": None, "flags": {"mem-fraction-static": 0.8}}):
        assert "memory-fraction" not in campaigns(server=stated)
    assert "memory-fraction" not in campaigns(engine="reference", server={"mem_fraction_static": None})


def test_prompts_that_are_not_there(campaigns) -> None:
    # mt_bench has 80 questions.
    found = campaigns(workload={"num_prompts": 81})["num-prompts"]
    assert (found.severity, found.what) == (Severity.ERROR, "81 prompts are asked for, mt_bench has 80")
    assert "num-prompts" not in campaigns(workload={"num_prompts": 80})
    assert "mt_bench" in campaigns(workload={"prompt_set": "mtbench"})["prompt-set"].next_step


def test_answers_longer_than_the_context(campaigns) -> None:
    assert campaigns(workload={"max_new_tokens": 4096})["context"].severity is Severity.ERROR
    assert "context" not in campaigns(workload={"max_new_tokens": 4095})
    assert "context" not in campaigns(workload={"max_new_tokens": 4096}, server={"context_length": None})


def test_prompts_are_counted_where_the_tokenizer_is(campaigns) -> None:
    """A token a word here, and of the first 32 questions of mt_bench the longest has 161 words."""
    write_word_tokenizer(campaigns.target)
    found = campaigns(workload={"max_new_tokens": 3936})["context"]
    assert (found.severity, found.next_step) == (Severity.WARNING, "serve with context_length 4097 or more")
    assert "context" not in campaigns(workload={"max_new_tokens": 3935})
    # One that cannot be used is no reason to say anything about prompts.
    (campaigns.target / "tokenizer.json").write_text("{}")
    assert "context" not in campaigns(workload={"max_new_tokens": 4000})


def write_word_tokenizer(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="counts tokens with the tokenizers package")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{{ messages[0]['content'] }}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


def test_sampling(campaigns) -> None:
    assert campaigns(workload={"temperature": 0.7})["temperature"].severity is Severity.WARNING
    assert campaigns(engine="reference", workload={"temperature": 0.7})["temperature"].severity is Severity.ERROR
    assert campaigns(workload={"ignore_eos": True})["ignore-eos"].severity is Severity.WARNING


def test_windows_that_decide_nothing(campaigns) -> None:
    assert campaigns(repeats=4)["repeats"].severity is Severity.NOTE
    assert "repeats" not in campaigns(repeats=1, max_concurrency=1)
    assert campaigns(baseline_again=False)["baseline-once"].severity is Severity.NOTE
    short = {"workload": {"num_prompts": 8}}
    assert campaigns(**short)["short-load"].what == "loads of 8 at once have no more requests than slots"
    assert "short-load" not in campaigns(workload={"num_prompts": 9})
    assert "short-load" not in campaigns(workload={"num_prompts": 8, "requests_per_slot": 2})
    # One request for one slot is a window.
    assert "short-load" not in campaigns(workload={"num_prompts": 1}, max_concurrency=1)
