from __future__ import annotations

import pytest

from workbench.sglang_rules.environment import variable_problem


@pytest.mark.parametrize(
    ("name", "version", "instead"),
    [
        ("SIMULATE_ACC_LEN", "0.5.14", "set SGLANG_SIMULATE_ACC_LEN"),
        ("SIMULATE_ACC_LEN", None, "set SGLANG_SIMULATE_ACC_LEN"),
        ("SIMULATE_ACC_LEN", "0.5.2", None),
        ("SGLANG_SIMULATE_ACC_LEN", "0.5.2", "set SIMULATE_ACC_LEN"),
        ("SGLANG_SIMULATE_ACC_LEN", "0.5.3", None),
        ("SGLANG_SIMULATE_ACC_LEN", "0.6.0", None),
        ("SIMULATE_ACC_LEN", "main", "set SGLANG_SIMULATE_ACC_LEN"),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.9", None),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.14", "leave it out"),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.3", "leave it out"),
        ("SGLANG_SIMULATE_ACC_LENGTH", "0.5.14", "did you mean SGLANG_SIMULATE_ACC_LEN?"),
        ("NCCL_P2P_LEVL", "0.5.14", "did you mean NCCL_P2P_LEVEL?"),
        ("NCCL_P2P_LEVEL", "0.5.14", None),
        ("CUDA_VISIBLE_DEVICE", "0.5.14", "did you mean CUDA_VISIBLE_DEVICES?"),
        ("NCCL_SOMETHING_NEW_AND_UNKNOWN", "0.5.14", None),
        ("HF_HOME", "0.5.14", None),
    ],
)
def test_names_that_are_not_read(name: str, version: str | None, instead: str | None) -> None:
    found = variable_problem(name, version)
    assert (found is None) is (instead is None)
    if found is not None and instead is not None:
        assert name in found[0] and found[1].startswith(instead)
