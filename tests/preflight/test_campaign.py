"""Findings of a whole campaign, and of the shipped ones."""

from __future__ import annotations

import pytest
from model_folders import CONFIG, draft_tensors, write_folder

from workbench.preflight import Finding, Machine, Severity, check_campaign, check_start, refusals
from workbench.sweep import expand, find_campaign

LAPTOP = Machine()
NODE = Machine((80 << 30,) * 8, "0.5.14")


def by_rule(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.result.rule: finding for finding in findings}


def test_what_holds_for_several_starts_is_one_finding_with_their_names(campaigns) -> None:
    sweep = [{"speculative_num_steps": [1, 3]}, {"speculative_num_steps": 3, "speculative_algorithm": "EAGLE"}]
    found = by_rule(check_campaign(campaigns.plan(sweep=sweep), machine=LAPTOP))
    assert found["gpus"].starts == (
        *("baseline-default", "eagle3-d-s1-k1-n2", "eagle3-d-s3-k1-n4", "eagle-d-s3-k1-n4"),
        "baseline-default-again",
    )
    assert found["algorithm"].starts == ("eagle-d-s3-k1-n4",)


def test_errors_come_first_and_refuse_their_starts_alone(campaigns, tmp_path) -> None:
    bad = write_folder(tmp_path / "bad", CONFIG, draft_tensors(d2t=None))
    drafters = [{"name": "good", "model_path": str(campaigns.draft)}, {"name": "bad", "model_path": str(bad)}]
    findings = check_campaign(campaigns.plan(drafters=drafters, baseline_again=False), machine=NODE)
    order = [finding.result.severity for finding in findings]
    assert order == sorted(order, key=["error", "warning", "note"].index)
    refused = refusals(findings)
    assert list(refused) == ["eagle3-bad-s3-k1-n4"]
    assert refused["eagle3-bad-s3-k1-n4"].startswith("tensor d2t is missing")


def test_a_start_alone_is_found_as_in_the_campaign(campaigns) -> None:
    start, spec = campaigns.start(server={"mem_fraction_static": None})
    alone = check_start(start, spec, machine=LAPTOP)
    whole = check_campaign(campaigns.plan(server={"mem_fraction_static": None}), machine=LAPTOP)
    assert set(alone) == {finding.result for finding in whole if start.server_id in finding.starts}
    assert len(alone) == len(set(alone))


@pytest.mark.parametrize(
    ("topk", "tokens", "version", "said"),
    [
        (1, [16], "0.5.14", ["speculative_num_draft_tokens 16 is served as 4"]),
        (1, [5, 16], "0.5.14", ["speculative_num_draft_tokens 5 is served as 4", "speculative_num_draft_tokens 16"]),
        (1, [4], "0.5.14", []),
        (1, [None], "0.5.14", []),
        (2, [8], "0.5.14", []),
        (1, [16], "0.4.5", []),
    ],
)
def test_draft_tokens_that_the_server_rewrites(
    campaigns, topk: int, tokens: list[int | None], version: str, said: list[str]
) -> None:
    block = {"speculative_num_steps": 3, "speculative_eagle_topk": topk, "speculative_num_draft_tokens": tokens}
    found = check_campaign(campaigns.plan(sweep=[block], sglang_version=version), machine=NODE)
    rewritten = [f.result.what for f in found if f.result.rule == "draft-tokens"]
    assert len(rewritten) == len(said)
    assert all(what.startswith(start) for what, start in zip(rewritten, said, strict=True))


def test_points_that_are_not_started_are_said(campaigns) -> None:
    tree = {"speculative_num_steps": 2, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": [7, 8]}
    found = by_rule(check_campaign(campaigns.plan(sweep=[tree]), machine=NODE))
    assert (found["refused"].result.severity, found["refused"].starts) == (Severity.WARNING, ())
    assert "the tree offers 6 drafts" in found["refused"].result.what
    twice = [{"speculative_num_steps": 3, "speculative_num_draft_tokens": [4, 16]}]
    assert (
        "eagle3-d-s3-k1-n16 is measured once"
        in by_rule(check_campaign(campaigns.plan(sweep=twice), machine=NODE))["merged"].result.what
    )


@pytest.mark.parametrize(("name", "controls"), [("kimi_k25_8gpu", ["eagle-custom-v3-s3-k1-n4"]), ("quickstart", [])])
def test_the_wrong_flag_is_the_only_error_of_the_shipped_campaigns(name: str, controls: list[str]) -> None:
    findings = check_campaign(expand(find_campaign(name)), machine=LAPTOP)
    errors = [finding for finding in findings if finding.result.severity is Severity.ERROR]
    assert [list(finding.starts) for finding in errors] == ([controls] if controls else [])
    assert {finding.result.rule for finding in errors} <= {"algorithm"}


def test_the_one_gpu_campaign_has_the_wrong_flag_as_its_only_error() -> None:
    findings = check_campaign(expand(find_campaign("h200_smollm2")), machine=LAPTOP)
    errors = [finding for finding in findings if finding.result.severity is Severity.ERROR]
    assert [finding.result.rule for finding in errors] == ["algorithm"]
    assert [start for finding in errors for start in finding.starts] == ["eagle-smollm2-135m-eagle3-s3-k1-n4"]
