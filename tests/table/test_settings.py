from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_folders import SPECULATIVE, campaign_info, write_campaign, write_run, write_text

from workbench.table import Tables, load_tables

ARGS = (
    "[2026-01-05 10:00:00] server_args=ServerArgs(model_path='m', attention_backend='fa3', disable_cuda_graph=True)\n"
)


def tables_of(folder: Path, resolved: object = None, log: bytes | None = None, **spec: object) -> Tables:
    campaign = write_campaign(folder / "c", drafters=[{"name": "d"}])
    write_run(campaign / "r", files={"resolved.json": resolved}, log=log, **spec)
    return load_tables(campaign)


def said(tables: Tables) -> dict[str, tuple[object, object]]:
    """Asked and used by setting, ``None`` where missing."""
    table = tables.settings.astype("object").where(tables.settings.notna(), None)
    return {row["setting"]: (row["asked"], row["used"]) for row in table.to_dict("records")}


def test_asked_beside_used(tmp_path: Path) -> None:
    tables = tables_of(
        tmp_path,
        {
            "attention_backend": "triton",
            "mem_fraction_static": 0.5,
            "cuda_graph_max_bs": 32,
            "disable_cuda_graph": False,
            "sampling_backend": "pytorch",
            "speculative_num_draft_tokens": 4,
            "max_running_requests": None,
            "internal_states": [{"effective_max_running_requests_per_dp": 48}],
            "dtype": "bfloat16",
            "device": "cuda",
        },
        **{
            **SPECULATIVE,
            "spec_decode": {"speculative_num_draft_tokens": 16},
            "server": {
                "attention_backend": "fa3",
                "mem_fraction_static": 0.5,
                "cuda_graph": True,
                "cuda_graph_max_bs_decode": 64,
                "max_running_requests": 64,
                "flags": {"sampling-backend": "pytorch"},
            },
        },
    )
    found = said(tables)
    assert found["attention_backend"] == ("fa3", "triton")
    assert found["mem_fraction_static"] == ("0.5", "0.5")
    assert found["cuda_graph"] == ("on", "on")
    assert found["cuda_graph_max_bs_decode"] == ("64", "32")
    assert found["sampling_backend"] == ("pytorch", "pytorch")
    assert found["speculative_num_draft_tokens"] == ("16", "4")
    assert found["max_running_requests"] == ("64", "48")
    assert found["dtype"] == (None, "bfloat16")
    assert set(tables.settings["source"]) == {"resolved.json"}
    assert tables.runs["dtype"].item() == "bfloat16"
    assert tables.runs["device"].item() == "cuda"


def test_half_characters_are_shown_as_escapes(tmp_path: Path) -> None:
    resolved = '{"pp_size": "\\ud800", "\\udfff": "x", "dtype": "\\ud801", "tp_size": 2}'
    tables = tables_of(tmp_path, resolved)
    assert said(tables)["pp_size"] == (None, "\\ud800") and said(tables)["\\udfff"] == (None, "x")
    assert tables.problems == ()


def test_a_folder_whose_name_is_no_text_is_shown_with_escapes(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"c\xff")
    write_text(folder / "campaign.json", campaign_info("c"))
    write_run(folder / "r", files={"resolved.json": {"tp_size": 2}}, campaign="c")
    tables = load_tables(folder)
    assert set(tables.settings["campaign"]) == {"c\\udcff"} == set(tables.runs["campaign"])


def test_without_resolved_settings_the_log_tells(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, log=ARGS.encode(), server={"attention_backend": "fa3"})
    assert said(tables)["attention_backend"] == ("fa3", "fa3")
    assert said(tables)["cuda_graph"] == (None, "off")
    assert set(tables.settings["source"]) == {"server.log"}


def test_without_either_nothing_is_said(tmp_path: Path) -> None:
    assert tables_of(tmp_path, server={"attention_backend": "fa3"}).settings.empty


def test_a_cpu_has_no_graphs_to_be_on_or_off(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"device": "cpu", "disable_cuda_graph": True, "cuda_graph_max_bs": 8, "dtype": "auto"})
    assert not {"cuda_graph", "cuda_graph_max_bs_decode", "disable_cuda_graph"} & set(said(tables))
    assert tables.runs["device"].item() == "cpu"
    assert tables.runs["cuda_graph"].isna().item()
    assert tables.runs["dtype"].isna().item()


@pytest.mark.parametrize("name", ["api_key", "admin_api_key", "hf_token"])
def test_secrets_stay_where_they_are(tmp_path: Path, name: str) -> None:
    assert name not in said(tables_of(tmp_path, {name: "s3cret", "device": "cuda"}))
