from __future__ import annotations

import struct

import pytest
from model_folders import TARGET_IDS, booleans, draft_tensors, int64, offsets, ones

from workbench.preflight import Severity


def test_missing_d2t_is_named(bench):
    found = bench(None, draft_tensors(d2t=None))
    assert set(found) == {"d2t-missing"}
    assert found["d2t-missing"].severity is Severity.ERROR
    assert "tensor d2t is missing" in found["d2t-missing"].what
    assert "draft_vocab_size 6 below vocab_size 16" in found["d2t-missing"].what


def test_all_zero_d2t(bench):
    found = bench(None, draft_tensors(d2t=int64([0] * 6), t2d=None))
    assert set(found) == {"d2t-zero"}
    assert found["d2t-zero"].severity is Severity.ERROR


def test_zero_d2t_is_right_where_the_vocabulary_is_whole(bench):
    tensors = draft_tensors(lm_head__weight=ones(16, 8), d2t=int64([0] * 16), t2d=booleans(range(16), 16))
    assert bench({"draft_vocab_size": 16}, tensors) == {}


def test_two_draft_ids_for_one_target_id(bench):
    found = bench(None, draft_tensors(d2t=offsets([0, 1, 4, 4, 10, 15]), t2d=None))["d2t-order"]
    assert found.severity is Severity.ERROR
    assert "1 draft ids share a target id" in found.what


def test_unsorted_but_unique_ids_are_a_warning(bench):
    found = bench(None, draft_tensors(d2t=offsets([1, 0, 4, 5, 10, 15])))
    assert {rule: r.severity for rule, r in found.items()} == {"d2t-order": Severity.WARNING}


@pytest.mark.parametrize("ids", [(0, 1, 4, 5, 10, 16), (-1, 1, 4, 5, 10, 15)])
def test_ids_outside_the_vocabulary(bench, ids):
    found = bench(None, draft_tensors(d2t=offsets(ids), t2d=None))["d2t-range"]
    assert found.severity is Severity.ERROR
    assert "1 target ids lie outside" in found.what
    assert "instead of offsets" not in found.what


def test_target_ids_stored_in_place_of_offsets_are_recognised(bench):
    # Read as offsets, 10 and 15 become 14 and 20, of 16.
    found = bench(None, draft_tensors(d2t=int64(TARGET_IDS)))["d2t-range"]
    assert "the first is 20" in found.what
    assert "target ids themselves instead of offsets" in found.what


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (int64([0, 0, 2]), "has shape [3], not [6]"),
        (("I64", (6, 1), struct.pack("<6q", 0, 0, 2, 2, 6, 10)), "has shape [6, 1], not [6]"),
        (ones(6), "holds BF16, not int64"),
    ],
)
def test_d2t_of_the_wrong_form(bench, tensor, message):
    assert message in bench(None, draft_tensors(d2t=tensor))["d2t-shape"].what


def test_int32_d2t_is_read(bench):
    tensor = ("I32", (6,), struct.pack("<6i", 0, 0, 2, 2, 6, 10))
    assert bench(None, draft_tensors(d2t=tensor)) == {}


def test_t2d_of_another_vocabulary(bench):
    # d2t keeps 0 1 4 5 10 15, t2d keeps 0 1 4 5 10 14: two of seven tokens differ.
    found = bench(None, draft_tensors(t2d=booleans([0, 1, 4, 5, 10, 14], 16)))
    assert set(found) == {"t2d-differs"}
    assert found["t2d-differs"].severity is Severity.ERROR
    assert "(2 of 7)" in found["t2d-differs"].what


def test_t2d_of_the_wrong_length_and_without_t2d(bench):
    assert set(bench(None, draft_tensors(t2d=booleans(TARGET_IDS, 17)))) == {"t2d-shape"}
    assert bench(None, draft_tensors(t2d=None)) == {}
