from __future__ import annotations

import os
from typing import Any

import pytest
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, ones, write_folder

from workbench.paths import CACHE_ENV
from workbench.preflight import Machine, Severity

GIB = 1 << 30
LAPTOP = Machine()
DRAFTERS = {"drafters": [{"name": "d", "model_path": "/models/none/d", "target": "T"}]}


def test_models_that_are_not_here_are_said_and_not_skipped(campaigns) -> None:
    found = campaigns(LAPTOP, target={"model_path": "/models/none/t"})["not-here"]
    assert (found.severity, found.what) == (Severity.NOTE, "not checked: /models/none/t is not on this machine")
    assert found.where == "target.model_path"
    found = campaigns(LAPTOP, **DRAFTERS)["not-here"]
    assert (found.severity, found.where) == (Severity.NOTE, "drafters: d")
    assert "not-here" not in campaigns(LAPTOP, **DRAFTERS, baseline=True)


def test_on_a_machine_that_would_serve_a_missing_folder_is_a_warning(campaigns) -> None:
    assert campaigns(**DRAFTERS)["not-here"].severity is Severity.WARNING
    prefix = ["docker", "run"]
    assert campaigns(**DRAFTERS, launch_prefix=prefix)["not-here"].severity is Severity.NOTE
    fetched = campaigns(target={"model_path": "owner/model"})["not-here"]
    assert (fetched.severity, fetched.next_step) == (Severity.NOTE, "run this check again when it has been fetched")


def test_the_embedded_engine_s_own_target_is_looked_for_in_the_cache(campaigns, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    named: dict[str, Any] = {"engine": "reference", "target": {"model_path": "known-by-name"}, "max_concurrency": 1}
    assert campaigns(**named)["not-here"].severity is Severity.NOTE
    write_folder(tmp_path / "cache" / "known-by-name", TARGET_CONFIG)
    assert "not-here" not in campaigns(**named)
    # SGLang does not look there.
    assert "not-here" in campaigns(**{**named, "engine": "sglang"})


def test_a_target_without_a_path_cannot_be_served(campaigns) -> None:
    assert campaigns(target={"model_path": None})["no-model-path"].severity is Severity.ERROR


def test_damaged_folders_are_errors(campaigns) -> None:
    (campaigns.target / "config.json").write_text("{")
    found = campaigns()["unreadable"]
    assert found.severity is Severity.ERROR and found.where.endswith("target/config.json")
    assert "unreadable" in campaigns(baseline=True)


def test_the_draft_is_checked_as_this_start_serves_it(campaigns, tmp_path) -> None:
    draft = write_folder(tmp_path / "no-map", CONFIG, draft_tensors(d2t=None))
    drafters = [{"name": "d", "model_path": str(draft)}]
    assert campaigns(drafters=drafters)["d2t-missing"].severity is Severity.ERROR
    assert "d2t-missing" not in campaigns(drafters=drafters, baseline=True)
    # Both reach 4096 tokens.
    assert "context-length" in campaigns(server={"context_length": 8192})
    assert "context-length" in campaigns(server={"context_length": None, "flags": {"context-length": 8192}})


@pytest.mark.parametrize(
    ("engine", "flags", "needed"),
    [
        ("sglang", {}, True),
        ("sglang", {"load-format": "dummy"}, False),
        ("sglang", {"speculative-draft-load-format": "dummy"}, False),
        ("sglang", {"load-format": "dummy", "speculative-draft-load-format": "auto"}, True),
        ("reference", {"load-format": "dummy"}, True),
    ],
)
def test_dummy_weights_need_no_files(campaigns, tmp_path, engine: str, flags: dict[str, str], needed: bool) -> None:
    """Without a load format of its own a draft has the target's."""
    bare = {"drafters": [{"name": "d", "model_path": str(write_folder(tmp_path / "bare", CONFIG))}]}
    found = campaigns(**bare, engine=engine, server={"flags": flags})
    assert ("no-weights" in found) is needed
    if needed:
        assert found["no-weights"].severity is Severity.ERROR


def test_a_quantised_target_needs_a_word_about_the_draft(campaigns, tmp_path) -> None:
    unquant = {"flags": {"speculative-draft-model-quantization": "unquant"}}
    absent = {**DRAFTERS, "target": {"quantization": "INT4"}}
    assert campaigns(LAPTOP, **absent)["quantization"].severity is Severity.WARNING
    assert "quantization" not in campaigns(LAPTOP, **absent, server=unquant)
    assert "quantization" not in campaigns(LAPTOP, **absent, baseline=True)
    assert "quantization" not in campaigns(LAPTOP, **DRAFTERS)
    # From the files of both.
    config = {**TARGET_CONFIG, "quantization_config": {"quant_method": "awq"}}
    here = {"target": {"model_path": str(write_folder(tmp_path / "awq", config))}}
    assert campaigns(**here)["quantization"].severity is Severity.WARNING
    assert "quantization" not in campaigns(**here, server=unquant)


@pytest.mark.parametrize(
    ("tp", "flags", "fires"), [(3, {}, True), (2, {}, False), (3, {"enable-dp-attention": True}, False)]
)
def test_heads_over_gpus(campaigns, tp: int, flags: dict[str, Any], fires: bool) -> None:
    """The target has 2 heads."""
    found = campaigns(server={"tp_size": tp, "flags": flags}, baseline=True)
    assert ("tensor-parallel" in found) is fires


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, Severity.ERROR),
        ({"env": {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}}, Severity.WARNING),
        ({"context_length": 4096}, None),
        ({"context_length": None}, None),
    ],
)
def test_a_context_that_the_target_does_not_reach(
    campaigns, changes: dict[str, Any], severity: Severity | None
) -> None:
    found = campaigns(server={"context_length": 5000, **changes}, baseline=True).get("target-context")
    assert (found and found.severity) == severity


def test_variables_of_this_shell_count_unless_the_server_is_elsewhere(campaigns, monkeypatch) -> None:
    monkeypatch.setenv("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
    assert os.environ["SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"] == "1"
    longer = {"server": {"context_length": 5000}, "baseline": True}
    assert campaigns(**longer)["target-context"].severity is Severity.WARNING
    assert campaigns(**longer, launch_prefix=["docker"])["target-context"].severity is Severity.ERROR


@pytest.mark.parametrize(
    ("gpu_bytes", "tp", "fraction", "severity"),
    [
        # 1,000,000 bfloat16 weights are 2,000,000 bytes.
        (2_000_000, 1, 0.9, Severity.ERROR),
        (2_300_000, 1, 0.9, Severity.WARNING),
        (2_600_000, 1, 0.9, None),
        (1_300_000, 2, 0.9, None),
        (2_000_000, 1, None, None),
    ],
)
def test_weights_against_the_memory_of_a_gpu(
    campaigns, tmp_path, gpu_bytes: int, tp: int, fraction: float | None, severity: Severity | None
) -> None:
    target = write_folder(tmp_path / "big", TARGET_CONFIG, {"model.w": ones(1000, 1000)})
    found = campaigns(
        Machine((gpu_bytes,) * 2, "0.5.14"),
        target={"model_path": str(target)},
        server={"tp_size": tp, "mem_fraction_static": fraction},
        baseline=True,
    ).get("memory")
    assert (found and found.severity) == severity


def test_the_draft_s_weights_count_too(campaigns, tmp_path) -> None:
    target = write_folder(tmp_path / "big", TARGET_CONFIG, {"model.w": ones(1000, 1000)})
    machine = Machine((2_222_300,), "0.5.14")
    settings = {"target": {"model_path": str(target)}, "server": {"mem_fraction_static": 0.9}}
    assert campaigns(machine, **settings, baseline=True)["memory"].severity is Severity.WARNING
    assert campaigns(machine, **settings)["memory"].severity is Severity.ERROR
    # Weights elsewhere, or behind a prefix on GPUs elsewhere, are not compared with these.
    assert "memory" not in campaigns(LAPTOP, **settings)
    assert "memory" not in campaigns(machine, **settings, launch_prefix=["ssh", "node"])
