from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.training.corpus import Corpus, Sample
from workbench.training.vocabulary import commonest, coverage

# The prompt is 9 9; of the answer 5 comes three times, 2 twice, 7 and 1 once.
CORPUS = Corpus([Sample(np.array([9, 9, 5, 2, 5, 7, 1, 2, 5], np.uint16), 2, 0, 0, "t")], {"vocab_size": 10})


def test_the_commonest_ids_of_the_responses() -> None:
    assert commonest(CORPUS, 3, 10).tolist() == [1, 2, 5]
    assert commonest(CORPUS, 6, 10).tolist() == [0, 1, 2, 3, 5, 7]


def test_coverage() -> None:
    assert coverage(CORPUS, np.array([2, 5])) == pytest.approx(5 / 7)


def test_more_ids_than_there_are() -> None:
    with pytest.raises(UsageError, match="11 ids are asked for"):
        commonest(CORPUS, 11, 10)
