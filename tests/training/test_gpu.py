from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import gpu_checks
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch sees"),
]


def test_flash_attention_is_the_plain_one() -> None:
    gpu_checks.check_flash_attention()


def test_training_on_a_gpu() -> None:
    gpu_checks.check_training()
