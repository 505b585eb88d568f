from __future__ import annotations

from dataclasses import replace

import pandas as pd
from analysis_tables import recorded

from workbench.analysis.campaign import diagnose_logs
from workbench.analysis.sound import certain_faults, flagged_servers, sound_rows, wrong_flags

SMOLLM = "h200_smollm2"


def test_the_wrong_flag_is_found_from_the_log_alone() -> None:
    tables = recorded(SMOLLM)
    assert list(wrong_flags(tables)) == [(SMOLLM, "eagle-flag")]
    assert flagged_servers(diagnose_logs(tables)).keys() == wrong_flags(tables).keys()


def test_other_certain_faults_are_faults_and_no_wrong_flag() -> None:
    diagnoses = diagnose_logs(recorded("kimi_k25"))
    faults = {server: [f.rule for f in certain_faults(each)] for (_, server), each in diagnoses.items()}
    assert faults == {"custom-v1-n4-c48": [], "custom-v3-n16-graph": [], "custom-v3-n5-nograph": ["graph_off"]}
    assert flagged_servers(diagnoses) == {}


def test_runs_of_a_flagged_server_are_left_out_of_any_table() -> None:
    tables = recorded(SMOLLM)
    kept = sound_rows(tables.runs, tables)
    assert set(tables.runs["server_id"]) - set(kept["server_id"]) == {"eagle-flag"}
    assert len(kept) == 6
    assert len(sound_rows(tables.runs, tables, flagged=[])) == 9
    assert sound_rows(tables.runs.iloc[:0], tables).empty


def test_a_server_of_that_name_in_another_campaign_counts() -> None:
    tables = recorded(SMOLLM)
    other = tables.runs.assign(campaign="other")
    both = replace(tables, runs=pd.concat([tables.runs, other], ignore_index=True))
    kept = sound_rows(both.runs, both)
    assert (kept["campaign"] == "other").sum() == 9
    assert (kept["campaign"] == SMOLLM).sum() == 6


def test_diagnoses_stand_beside_the_baseline_of_their_group() -> None:
    measured = recorded(SMOLLM).runs.assign(simulated_accept_length=float("nan"))
    verdict = diagnose_logs(replace(recorded(SMOLLM), runs=measured))[SMOLLM, "sim25-s3"].verdict
    assert "not decidable from these two logs" in verdict
    assert "--baseline" not in verdict


def test_a_drafter_is_not_judged_by_simulated_acceptance() -> None:
    diagnosis = diagnose_logs(recorded(SMOLLM))[SMOLLM, "sim25-s3"]
    assert diagnosis.verdict.startswith("Acceptance is simulated (SGLANG_SIMULATE_ACC_LEN): this log shows what a step")
    (finding,) = [each for each in diagnosis.findings if each.rule == "simulated_acceptance"]
    assert finding.evidence == ("started with an accept length of 2.5",)
    assert not {each.rule for each in diagnosis.findings} & {"does_it_pay", "low_accept_length", "nothing_accepted"}
