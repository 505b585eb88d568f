from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, ValidationError

from workbench.spec import (
    CampaignInfo,
    Drafter,
    OfflineAcceptance,
    Range,
    ReportedFigures,
    RunSpec,
    RunState,
    RunStatus,
    ServerConfig,
    SpecDecodeConfig,
    Workload,
)

SPEC: dict[str, object] = {
    "campaign": "c",
    "run_id": "r",
    "server_id": "s",
    "target": {"name": "T"},
    "workload": {"prompt_set": "p", "temperature": 0},
}


def spec(**more: object) -> RunSpec:
    return RunSpec.model_validate({**SPEC, **more})


def faults(model: type[BaseModel], text: str) -> list[str]:
    """Where a strictly read JSON text is refused."""
    try:
        model.model_validate_json(text, strict=True)
    except ValidationError as error:
        return [".".join(map(str, fault["loc"])) for fault in error.errors()]
    return []


def test_unknown_keys_are_refused_at_every_depth() -> None:
    assert faults(RunSpec, json.dumps({**SPEC, "targte": {}})) == ["targte"]
    assert faults(RunSpec, json.dumps({**SPEC, "server": {"tp": 8}})) == ["server.tp"]
    assert faults(Drafter, '{"name": "d", "offline": [{"prompt_set": "p", "steps": {}}]}') == [
        "offline.0.accept_length_by_steps",
        "offline.0.steps",
    ]


def test_what_is_not_stated_is_none_and_no_default_of_a_server() -> None:
    assert set(SpecDecodeConfig().model_dump().values()) == {None}
    stated = ServerConfig().model_dump(exclude={"tp_size", "dp_size", "flags", "env"})
    assert set(stated.values()) == {None}


def test_models_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().run_id = "other"


def test_the_role_follows_from_the_presence_of_speculation_alone() -> None:
    assert spec().role == "baseline"
    assert spec(spec_decode={}).role == "speculative"


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a\nb", "a\x00b", ".", "..", "x" * 201])
def test_names_that_cannot_be_folders_are_refused(name: str) -> None:
    assert faults(CampaignInfo, json.dumps({"name": name, "title": "t", "target": "t", "machine": "m"})) == ["name"]


@pytest.mark.parametrize("name", ["a b", 'say "hello"', "<b>bold", "naïve ☃", "..."])
def test_odd_names_are_names(name: str) -> None:
    assert faults(CampaignInfo, json.dumps({"name": name, "title": "t", "target": "t", "machine": "m"})) == []


@pytest.mark.parametrize("value", ["true", '"8"', "8.5", "-1", "1e400", "NaN", "1" + "0" * 30, "[8]", "{}"])
def test_counts_take_whole_numbers_only(value: str) -> None:
    assert faults(ReportedFigures, f'{{"source": "s", "completion_tokens": {value}}}') == ["completion_tokens"]
    assert faults(Workload, f'{{"prompt_set": "p", "max_concurrency": {value}}}') == ["max_concurrency"]


@pytest.mark.parametrize("value", ["true", '"8"', "NaN", "Infinity", "-Infinity", "1e400"])
def test_figures_take_finite_numbers_only(value: str) -> None:
    assert faults(Range, f'{{"low": 1, "high": {value}}}') == ["high"]
    assert faults(OfflineAcceptance, f'{{"prompt_set": "p", "accept_length_by_steps": {{"3": {value}}}}}') == [
        "accept_length_by_steps.3"
    ]


def test_lone_surrogates_and_deep_nesting_are_refused_not_raised() -> None:
    assert faults(CampaignInfo, '{"name": "\\ud800", "title": "t", "target": "t", "machine": "m"}') != []
    assert faults(CampaignInfo, "[" * 100_000) != []


def test_a_range_is_ordered() -> None:
    assert Range(low=2.0, high=2.0).low == 2.0
    with pytest.raises(ValidationError, match=r"low 2.5 is above high 2.0"):
        Range(low=2.5, high=2.0)


@pytest.mark.parametrize("span", [(5, 5), (9, 2), (-1, 4)])
def test_a_log_span_holds_something(span: tuple[int, int]) -> None:
    with pytest.raises(ValidationError):
        RunStatus(status=RunState.OK, log_spans=((0, 4), span))


def test_json_reads_back_to_the_same() -> None:
    full = spec(
        spec_decode={"speculative_num_steps": 3, "simulated_accept_length": 2.5},
        server={"cuda_graph": True, "flags": {"page_size": 1, "device": "cuda", "trust": False}, "env": {"A": "1"}},
    )
    assert RunSpec.model_validate_json(full.model_dump_json(), strict=True) == full


# --- the content hash --------------------------------------------------------------------------------------------


def test_names_and_notes_do_not_change_the_hash() -> None:
    renamed = spec(
        campaign="other", run_id="x", server_id="y", label="L", notes="n", target={"name": "T", "notes": "seen before"}
    )
    assert renamed.content_hash() == spec().content_hash()


@pytest.mark.parametrize(
    "change",
    [
        {"drafter": "d"},
        {"spec_decode": {}},
        {"server": {"tp_size": 2}},
        {"server": {"flags": {"page_size": 1}}},
        {"server": {"env": {"A": "1"}}},
        {"workload": {"prompt_set": "p", "temperature": 0, "max_concurrency": 8}},
        {"sglang_version": "0.5.14"},
        {"target": {"name": "T", "quantization": "fp8"}},
        {"baseline_group": "again"},
    ],
)
def test_whatever_is_measured_changes_the_hash(change: dict[str, object]) -> None:
    assert spec(**change).content_hash() != spec().content_hash()


def test_equal_content_has_an_equal_hash_however_it_was_written() -> None:
    one = spec(server={"flags": {"a": 1, "b": 2}}, workload={"prompt_set": "p", "temperature": 0})
    other = spec(workload={"temperature": 0.0, "prompt_set": "p"}, server={"flags": {"b": 2, "a": 1}})
    assert one.content_hash() == other.content_hash()
    assert len(one.content_hash()) == 6


def test_the_hash_is_that_of_the_stated_content() -> None:
    # printf '%s' '...' | sha256sum, of the stated fields in order of their names:
    # {"baseline_group": "default", "engine": "sglang", "server": {"dp_size": 1, "env": {}, "flags": {}, "tp_size": 1},
    #  "target": {"name": "T"}, "workload": {"prompt_set": "p", "temperature": 0.0}}
    assert spec().content_hash() == "2e44c1"
