"""Campaign files and their expansion; expected starts are worked out by hand."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.sweep import CampaignSpec, Plan, expand, find_campaign, parse_campaign, read_campaign_file, with_control

CAMPAIGNS = Path(__file__).parents[1] / "data" / "campaigns"
SMALL = """
name: small
title: Small
target: {name: t, model_path: /models/t}
drafters:
  - {name: d, model_path: /models/d}
workload: {prompt_set: mixed, num_prompts: 4, max_new_tokens: 8}
sweep:
  - speculative_num_steps: 3
"""


def plan(text: str = SMALL, **changes: object) -> Plan:
    content = yaml.safe_load(text)
    content.update(changes)
    return expand(parse_campaign(yaml.safe_dump(content), name="small.yaml"))


def servers(planned: Plan) -> list[str]:
    return [start.server_id for start in planned.starts]


def test_a_baseline_stands_before_and_after_the_candidates() -> None:
    planned = plan()
    assert servers(planned) == ["baseline-default", "eagle3-d-s3-k1-n4", "baseline-default-again"]
    assert [start.role for start in planned.starts] == ["baseline", "speculative", "baseline"]


def test_baselines_and_what_is_named_are_measured_alone() -> None:
    planned = plan(sweep=[{"speculative_num_steps": [2, 3]}], places=2, alone="eagle3-d-s3*")
    assert [start.alone for start in planned.starts] == [True, False, True, True]
    # Nor do neighbours make another run of it.
    assert [start.runs for start in planned.starts] == [
        start.runs for start in plan(sweep=[{"speculative_num_steps": [2, 3]}]).starts
    ]


def test_with_interference_a_start_comes_twice() -> None:
    sweep = [{"speculative_num_steps": [2, 3], "max_concurrency": [1, 8]}]
    planned = with_control(plan(sweep=sweep, places=2, alone="eagle3-d-s2*", interference=True))
    assert servers(planned)[1:4] == ["eagle3-d-s2-k1-n3", "eagle3-d-s3-k1-n4-alone", "eagle3-d-s3-k1-n4"]
    control, twin = planned.starts[2:4]
    assert (control.alone, twin.alone) == (True, False)
    assert [run.run_id for run in control.runs] == [run.run_id.replace("k1-n4-", "k1-n4-alone-") for run in twin.runs]
    assert {run.server_id for run in control.runs} == {"eagle3-d-s3-k1-n4-alone"}
    assert [run.content_hash() for run in control.runs] == [run.content_hash() for run in twin.runs]
    unasked = plan(sweep=sweep, places=2)
    assert with_control(unasked) == unasked
    with pytest.raises(SpecError, match="set places to 2 or more"):
        plan(interference=True)


def test_loads_share_a_start() -> None:
    planned = plan(max_concurrency=[1, 8])
    assert [run.workload.max_concurrency for run in planned.starts[1].runs] == [1, 8]
    assert len({run.server_id for run in planned.starts[1].runs}) == 1


def test_requests_grow_with_the_slots() -> None:
    workload = {"prompt_set": "mixed", "num_prompts": 4, "requests_per_slot": 2, "max_new_tokens": 8}
    candidate = plan(workload=workload, max_concurrency=[1, 2, 8]).starts[1]
    assert [run.workload.num_prompts for run in candidate.runs] == [4, 4, 16]


def test_prompts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text('{"text": "a"}', encoding="utf-8")
    planned = plan(workload={"prompt_set": str(path), "num_prompts": 1, "max_new_tokens": 8})
    assert planned.campaign.workload.prompt_set == str(path)
    # sha256 of the line.
    expected = hashlib.sha256(b'{"text": "a"}').hexdigest()[:8]
    assert {run.workload.prompt_set for start in planned.starts for run in start.runs} == {f"chat-{expected}"}


def test_a_baseline_may_have_more_loads_than_the_candidates() -> None:
    planned = plan(max_concurrency=[1, 8], baseline_max_concurrency=[1, 2, 64])
    loads = [[run.workload.max_concurrency for run in start.runs] for start in planned.starts]
    assert loads == [[1, 2, 8, 64], [1, 8], [1, 2, 8, 64]]


def test_flags_of_speculation_alone_share_the_baseline() -> None:
    block = {"speculative_num_steps": 3, "flags": {"speculative-attention-mode": ["prefill", "decode"]}}
    planned = plan(sweep=[block])
    assert [start.role for start in planned.starts] == ["baseline", "speculative", "speculative", "baseline"]
    assert {run.baseline_group for start in planned.starts for run in start.runs} == {"default"}
    assert planned.starts[0].server.flags == {}


def test_only_some_starts() -> None:
    sweep = [{"speculative_num_steps": [1, 2, 3]}]
    assert servers(plan(sweep=sweep, only=["*-s1-*", "baseline-default"])) == ["baseline-default", "eagle3-d-s1-k1-n2"]
    whole = {start.server_id: start.runs for start in plan(sweep=sweep).starts}
    assert all(start.runs == whole[start.server_id] for start in plan(sweep=sweep, only="*-s2-*").starts)
    with pytest.raises(SpecError, match="no start is called nothing"):
        plan(only="nothing")


def test_the_same_point_in_two_blocks_is_one_start_with_the_loads_of_both() -> None:
    sweep = [
        {"speculative_num_steps": 3, "max_concurrency": [1, 4]},
        {"speculative_num_steps": 3, "max_concurrency": [4, 2]},
    ]
    planned = plan(sweep=sweep)
    assert [run.workload.max_concurrency for run in planned.starts[1].runs] == [1, 4, 2]
    assert planned.merged == ()


def test_draft_tokens_16_and_5_at_topk_1_are_the_same_to_the_server() -> None:
    planned = plan(sweep=[{"speculative_num_steps": 3, "speculative_num_draft_tokens": [16, 5]}])
    assert servers(planned) == ["baseline-default", "eagle3-d-s3-k1-n4", "baseline-default-again"]
    assert [point.point for point in planned.merged] == ["eagle3-d-s3-k1-n5"]


def test_a_tree_larger_than_its_pool_is_refused_with_the_rule() -> None:
    # topk + (steps - 1) * topk^2 = 2 + 1 * 4 = 6 drafts; 8 draft tokens need 7.
    block = {"speculative_num_steps": 2, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": [7, 8]}
    planned = plan(sweep=[block])
    assert servers(planned)[1:-1] == ["eagle3-d-s2-k2-n7"]
    assert "6 drafts" in planned.refused[0].why


def test_every_server_setting_has_its_own_baseline() -> None:
    planned = plan(server={"cuda_graph": True}, sweep=[{"speculative_num_steps": 3, "cuda_graph": [True, False]}])
    assert servers(planned) == [
        "baseline-default",
        "eagle3-d-s3-k1-n4",
        "baseline-default-again",
        "baseline-nograph",
        "eagle3-d-s3-k1-n4-nograph",
        "baseline-nograph-again",
    ]
    groups = {start.server_id: start.runs[0].baseline_group for start in planned.starts}
    assert groups["eagle3-d-s3-k1-n4-nograph"] == groups["baseline-nograph"] == "nograph"


def test_run_ids_are_readable_and_end_in_the_content_hash() -> None:
    run = plan().starts[1].runs[0]
    assert run.run_id == f"eagle3-d-s3-k1-n4-c1-{run.content_hash()}"


def test_gpu_hours() -> None:
    # 3 starts of 60 s; each run: (1 repeat + 1 warm-up) x 4 prompts x 8 tokens / 2 tok/s = 32 s; on 8 GPUs.
    planned = plan(expected_tok_per_s=2, expected_start_s=60, server={"tp_size": 8})
    assert planned.gpu_hours == pytest.approx(3 * (60 + 32) * 8 / 3600)
    assert plan().gpu_hours is None


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        ("workload: {prompt_set: mixed, num_prompts", "workload: {prompt_set: mixed, num_promts", "num_prompts"),
        ("title: Small", "titel: Small", "title"),
        ("speculative_num_steps: 3", "speculative_steps: 3", "speculative_num_steps"),
        ("title: Small", "title: Small\nnum_prompts: 3", "workload.num_prompts"),
    ],
)
def test_a_misspelt_name_is_refused_with_its_line_and_the_nearest(change: str, line: str, said: str) -> None:
    text = SMALL.replace(change, line)
    number = next(n for n, content in enumerate(text.splitlines(), 1) if line.splitlines()[-1] in content)
    with pytest.raises(SpecError) as caught:
        parse_campaign(text, name="c.yaml")
    assert str(caught.value).startswith(f"c.yaml:{number}: ")
    assert f"did you mean {said!r}" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "name: x", "- 1", "name: *x", "\x00", "a: !!python/object:x {}"])
def test_what_is_no_campaign_is_a_spec_error(text: str) -> None:
    with pytest.raises(SpecError):
        parse_campaign(text, name="c.yaml")


@given(st.text(max_size=200))
def test_any_text_is_a_campaign_or_a_spec_error(text: str) -> None:
    try:
        assert isinstance(parse_campaign(text, name="c.yaml"), CampaignSpec)
    except SpecError as error:
        assert error.where is not None and error.where.startswith("c.yaml")


@given(
    steps=st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True),
    topk=st.integers(1, 4),
    tokens=st.none() | st.integers(2, 20),
)
def test_a_campaign_survives_its_own_json(steps: list[int], topk: int, tokens: int | None) -> None:
    block = {"speculative_num_steps": steps, "speculative_eagle_topk": topk, "speculative_num_draft_tokens": tokens}
    planned = plan(sweep=[block])
    again = CampaignSpec.model_validate_json(planned.campaign.model_dump_json())
    assert servers(expand(again)) == servers(planned)
    assert len(planned.starts) + len(planned.merged) + len(planned.refused) >= len(steps)


def test_an_unknown_drafter_is_refused() -> None:
    with pytest.raises(SpecError, match="no drafter 'e'"):
        plan(sweep=[{"drafter": "e", "speculative_num_steps": 3}])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL + "notes: &a [x, *a]\n", "c.yaml:10: alias [*]a"),
        (SMALL + "repeats: 2\nrepeats: 5\n", "c.yaml:11: 'repeats' is set twice"),
        (SMALL.replace("speculative_num_steps: 3", "speculative_num_steps: []"), "at least 1 item"),
        (SMALL.replace("/models/d}", "/models/d}\n  - {name: d, model_path: /models/e}"), "two are called 'd'"),
        (SMALL.replace("name: small", "name: _small"), "such folders are not read"),
    ],
)
def test_what_would_be_lost_in_silence_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_campaign(text, name="c.yaml")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_concurrency: [1:30]", "max_concurrency.0: Input should be a valid integer"),
        ("max_concurrency: [yes]", "max_concurrency.0: Input should be a valid integer"),
        ("max_concurrency: [true]", "max_concurrency.0: Input should be a valid integer"),
        ("repeats: yes", "repeats: Input should be a valid integer"),
        ("repeats: true", "repeats: Input should be a valid integer\n  -> give a whole number"),
        ('repeats: "3"', "repeats: Input should be a valid integer"),
        (
            "server: {mem_fraction_static: yes}",
            "mem_fraction_static: Input should be a valid number\n  -> give a number",
        ),
        ("server: {mem_fraction_static: 1:30}", "mem_fraction_static: Input should be a valid number"),
        ("server: {mem_fraction_static: 90}", "mem_fraction_static: Input should be less than or equal to 1"),
        ("server: {cuda_graph: off}", "cuda_graph: Input should be a valid boolean\n  -> give true or false"),
    ],
)
def test_what_is_no_number_or_no_switch_is_not_taken_for_one(line: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_campaign(f"{SMALL}{line}\n", name="c.yaml")
    assert str(caught.value).startswith("c.yaml:10: ")
    assert said in str(caught.value)


def test_values_are_read_as_they_look() -> None:
    lines = "max_concurrency: [010]\nserver: {context_length: 0100, flags: {c: off, d: 1:30, e: true, f: 1e3}}\n"
    campaign = parse_campaign(SMALL + lines, name="c.yaml")
    assert (campaign.max_concurrency, campaign.server.context_length) == ((10,), 100)
    assert campaign.server.flags == {"c": "off", "d": "1:30", "e": True, "f": 1000.0}
    changed = find_campaign("quickstart", ["server.flags={c: off}", "question=1e3 or 010?", "notes=['1e3']"])
    assert (changed.server.flags, changed.question, changed.notes) == ({"c": "off"}, "1e3 or 010?", ("1e3",))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"server": {"env": {"N": "a\0b"}}}, "server.env.N holds the character NUL"),
        ({"server": {"env": {"N\0": "a"}}}, r"server.env.'N\x00' holds the character NUL"),
        ({"server": {"flags": {"f": "a\0b"}}}, "server.flags.f holds the character NUL"),
        ({"launch_prefix": ["srun", "a\0"]}, "launch_prefix.1 holds the character NUL"),
        ({"target": {"name": "t", "model_path": "/m\0"}}, "target.model_path holds the character NUL"),
        ({"sweep": [{"speculative_num_steps": 3, "env": {"A": ["b", "\0"]}}]}, "sweep.0.env.A.1 holds the character"),
        ({"server": {"env": {"A=B": "c"}}}, "'A=B' is no name of a variable"),
        ({"sweep": [{"speculative_num_steps": 3, "env": {"": "x"}}]}, "'' is no name of a variable"),
        ({"server": {"flags": {"": 2}}}, "'' is no name of a flag"),
        ({"server": {"flags": {"--evil; rm": 1}}}, "'--evil; rm' is no name of a flag"),
        ({"sweep": [{"speculative_num_steps": 3, "flags": {"a=b": 1}}]}, "'a=b' is no name of a flag"),
    ],
)
def test_what_no_program_can_be_given_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        plan(**changes)
    assert said in str(caught.value)


def test_values_and_names_that_look_alike_are_told_apart() -> None:
    modes = plan(sweep=[{"speculative_num_steps": 3, "env": {"MODE": ["Fast", "fast"]}}])
    assert len({start.server_id for start in modes.starts if start.role == "speculative"}) == 2
    drafters = [{"name": "d 1", "model_path": "/a"}, {"name": "d-1", "model_path": "/b"}]
    alike = servers(plan(drafters=drafters, baseline_again=False))
    assert alike == ["baseline-default", "eagle3-d-1-s3-k1-n4", "eagle3-d-1-s3-k1-n4-2"]


@pytest.mark.parametrize("server", [{"flags": {"api-key": "s3cret-value"}}, {"env": {"HF_TOKEN": "s3cret-value"}}])
def test_secrets_are_refused_and_not_repeated(server: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="is a secret") as raised:
        plan(server=server)
    assert "s3cret-value" not in str(raised.value)


def test_settings_change_the_file() -> None:
    campaign = find_campaign("quickstart", ["workload.num_prompts=2", "drafters.0.model_path=/x", "repeats=7"])
    assert (campaign.workload.num_prompts, campaign.drafters[0].model_path, campaign.repeats) == (2, "/x", 7)
    for wrong in ("repeats", "repeats.x=1", "drafters.9.name=x", "repeats=no"):
        with pytest.raises(SpecError):
            find_campaign("quickstart", [wrong])
    with pytest.raises(SpecError, match="quickstart"):
        find_campaign("quikstart")


def test_the_shipped_campaigns() -> None:
    counts = {path.stem: len(expand(read_campaign_file(path)).starts) for path in CAMPAIGNS.glob("*.yaml")}
    assert counts.keys() == {
        "quickstart",
        "cpu_drafters",
        "h200_best_drafter",
        "h200_smollm2",
        "h200_variants",
        "h200_kimi_shape",
        "h200_scaling",
        "h200_grid",
        "h200_tune",
        "h200_wide",
        "h200x2_dp",
        "h200x2_kimi_shape",
        "kimi_k25_8gpu",
    }
    assert counts["quickstart"] == 3
    assert counts["kimi_k25_8gpu"] <= 40
    assert "eagle3-custom-v3-s3-k1-n4" in servers(expand(read_campaign_file(CAMPAIGNS / "kimi_k25_8gpu.yaml")))
