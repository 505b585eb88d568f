from __future__ import annotations

from collections.abc import Iterator

import pytest
from injecting import Tally


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Faults of this test; their sum is told at the end of the session."""
    tally = Tally()
    yield tally
    request.node.user_properties.append(("faults", (tally.injected, tally.survived, tally.lost)))
