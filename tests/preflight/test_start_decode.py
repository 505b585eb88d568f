from __future__ import annotations

from typing import Any

import pytest
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, write_folder

from workbench.preflight import Severity


def sweep(**block: Any) -> dict[str, Any]:
    return {"sweep": [{"speculative_num_steps": 3, **block}]}


ABSENT = {"drafters": [{"name": "d", "model_path": "/models/none", "target": "T"}]}


def test_a_good_campaign_has_no_findings(campaigns) -> None:
    assert campaigns() == {}
    assert campaigns(baseline=True) == {}


def test_the_silent_failure_is_an_error_with_and_without_the_draft_s_files(campaigns) -> None:
    for algorithm in ("EAGLE", "NEXTN", "eagle"):
        for drafters in ({}, ABSENT):
            found = campaigns(**sweep(speculative_algorithm=algorithm), **drafters)["algorithm"]
            assert found.severity is Severity.ERROR
            assert "accept length 1.00" in " ".join(found.why.split())
    assert "algorithm" not in campaigns(**ABSENT)
    # The baseline has no algorithm that could be wrong.
    assert "algorithm" not in campaigns(**sweep(speculative_algorithm="EAGLE"), baseline=True)


def test_an_eagle_1_draft_that_is_here_goes_with_eagle(campaigns, tmp_path) -> None:
    draft = write_folder(tmp_path / "eagle1", {**CONFIG, "architectures": ["LlamaForCausalLMEagle"]}, draft_tensors())
    drafters = [{"name": "d", "model_path": str(draft)}]
    found = campaigns(**sweep(speculative_algorithm="EAGLE"), drafters=drafters)
    assert list(found) == ["not-eagle3"]


@pytest.mark.parametrize(
    ("algorithm", "rule", "severity", "next_step"),
    [
        ("EAGEL3", "algorithm-unknown", Severity.ERROR, "write EAGLE3"),
        ("MEDUSA", "algorithm-unknown", Severity.WARNING, "use one of EAGLE, NEXTN, EAGLE3"),
        ("eagle3", "algorithm-case", Severity.NOTE, "write EAGLE3"),
        ("NEXTN", "algorithm-alias", Severity.NOTE, "write EAGLE"),
    ],
)
def test_the_spelling_of_an_algorithm(campaigns, algorithm: str, rule: str, severity: Severity, next_step: str) -> None:
    found = campaigns(**sweep(speculative_algorithm=algorithm))[rule]
    assert (found.severity, found.next_step[: len(next_step)]) == (severity, next_step)


@pytest.mark.parametrize(("version", "fires"), [("0.4.4", True), ("0.4.4.post4", False), (None, False)])
def test_an_algorithm_that_the_version_has_not(campaigns, version: str | None, fires: bool) -> None:
    for drafters in ({}, ABSENT):
        found = campaigns(sglang_version=version, **drafters, **sweep(speculative_num_draft_tokens=4))
        assert ("algorithm-version" in found) is fires


def test_the_embedded_engine_has_three_algorithms(campaigns) -> None:
    found = campaigns(engine="reference", **sweep(speculative_algorithm="NGRAM"))["algorithm-unknown"]
    assert found.severity is Severity.ERROR and found.next_step == "use one of EAGLE, EAGLE3, NEXTN"
    assert "algorithm-unknown" not in campaigns(engine="reference", server={"max_running_requests": 1})


def test_eagle3_needs_a_drafter_with_a_path(campaigns) -> None:
    assert campaigns(drafters=[])["no-drafter"].severity is Severity.ERROR
    assert campaigns(drafters=[{"name": "d"}])["no-model-path"].severity is Severity.ERROR
    without = campaigns(drafters=[], **sweep(speculative_algorithm="NGRAM"))
    assert not {"no-drafter", "no-model-path"} & set(without)


@pytest.mark.parametrize(("made_for", "fires"), [("Other", True), ("t", False), (None, False)])
def test_a_drafter_of_another_target(campaigns, made_for: str | None, fires: bool) -> None:
    drafters = [{"name": "d", "model_path": str(campaigns.draft), "target": made_for}]
    assert ("drafter-target" in campaigns(drafters=drafters)) is fires


TREE = {"speculative_eagle_topk": 2, "speculative_num_draft_tokens": 8}


@pytest.mark.parametrize(
    ("version", "backend", "page_size", "fires"),
    [
        ("0.5.14", "flashmla", 64, True),
        ("0.5.14", "triton", 64, False),
        ("0.5.12", "triton", 64, True),
        ("0.5.14", "flashmla", 1, False),
        ("0.5.14", "flashmla", None, False),
    ],
)
def test_trees_with_pages(campaigns, version: str, backend: str, page_size: int | None, fires: bool) -> None:
    server = {"attention_backend": backend, "flags": {"page-size": page_size}}
    found = campaigns(sglang_version=version, server=server, **sweep(**TREE)).get("shape")
    assert (found is not None) is fires
    if found is not None:
        assert found.severity is Severity.ERROR and backend in found.what


def test_useless_depth_and_spec_v2_are_said(campaigns) -> None:
    deep = sweep(speculative_eagle_topk=4, speculative_num_draft_tokens=3)
    server = {"attention_backend": "triton"}
    assert "deeper than 2" in campaigns(server=server, **deep)["shape-adjusted"].what
    v2 = {**server, "env": {"SGLANG_ENABLE_SPEC_V2": "1"}}
    assert "spec v1" in campaigns(sglang_version="0.5.12", server=v2, **sweep(**TREE))["shape-adjusted"].what
    assert "SPEC_V2" in campaigns(sglang_version="0.5.9", server=v2, **sweep(**TREE))["shape"].what
    assert "shape-adjusted" not in campaigns(sglang_version="0.5.14", server=server, **sweep(**TREE))


@pytest.mark.parametrize(
    ("server", "steps", "fires"),
    [
        ({"attention_backend": "torch_native"}, 3, True),
        ({"attention_backend": "torch_native"}, 1, False),
        ({"attention_backend": "triton"}, 3, False),
        ({"attention_backend": "torch_native", "flags": {"speculative-draft-attention-backend": "triton"}}, 3, False),
        ({"flags": {"attention-backend": "torch_native"}}, 3, True),
        ({}, 3, False),
    ],
)
def test_backends_that_cannot_draft(campaigns, server: dict[str, Any], steps: int, fires: bool) -> None:
    found = campaigns(server=server, **sweep(speculative_num_steps=steps))
    assert ("draft-backend" in found) is fires


def test_a_tree_without_a_stated_backend_differs_from_its_baseline(campaigns, tmp_path) -> None:
    assert campaigns(**sweep(**TREE))["default-backend"].severity is Severity.WARNING
    assert "default-backend" not in campaigns()
    assert "default-backend" not in campaigns(server={"attention_backend": "triton"}, **sweep(**TREE))
    latent = write_folder(tmp_path / "latent", {**TARGET_CONFIG, "kv_lora_rank": 4})
    assert "default-backend" not in campaigns(target={"model_path": str(latent)}, **sweep(**TREE))


@pytest.mark.parametrize(
    ("version", "env", "fires"),
    [
        ("0.5.9", {}, True),
        ("0.5.9", {"SGLANG_ENABLE_SPEC_V2": "1"}, False),
        ("0.5.3", {"SGLANG_ENABLE_SPEC_V2": "1"}, True),
        ("0.5.11", {}, False),
        (None, {}, False),
    ],
)
def test_lost_overlap_is_said(campaigns, version: str | None, env: dict[str, str], fires: bool) -> None:
    assert ("overlap" in campaigns(sglang_version=version, server={"env": env})) is fires
    assert "overlap" not in campaigns(sglang_version=version, server={"env": env}, baseline=True)
