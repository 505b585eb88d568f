from __future__ import annotations

import pytest
from live_campaigns import write_campaign

from workbench import progress
from workbench.progress import Progress, duration
from workbench.sweep import expand, read_campaign_file


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "_clock", made)
    return made


def test_time_left_is_by_rounds_and_starts(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> None:
    """Two starts of a run each: 6 prompts at concurrency 2, two passes: 2 x 3 rounds and one of warm-up, 7 a run."""
    root = tmp_path_factory.mktemp("project")
    (root / "data").mkdir()
    path = write_campaign(root, max_concurrency=2, repeats=2, baseline_again=False)
    starts = expand(read_campaign_file(path)).starts
    said: list[str] = []
    told = Progress(starts, 2, said.append)
    assert told.seconds_left() is None
    with told.starting() as is_ready:
        clock.now += 30
        is_ready()
        with told.measuring(starts[0].runs[0]):
            assert said == [f"\r    {starts[0].runs[0].run_id}: warming up"]
            clock.now += 20
            told.answered()
            told.answered()
            # Two rounds in 20 s: 12 rounds at 10 s, and another start of 30 s.
            assert told.seconds_left() == pytest.approx(150)
            # One and a half rounds in 20 s when it was said: 12.5 at 13.3 s and a start make 197 s. The second answer
            # came with the first: one line is enough.
            assert said[1:] == [f"\r    {starts[0].runs[0].run_id}: 1 of 12 requests, 20 s, about 3 min left"]
            for _ in range(10):
                clock.now += 5
                told.answered()
    # 7 rounds in 70 s; 7 rounds and a start are left.
    assert told.seconds_left() == pytest.approx(100)
    assert said[-1].endswith("12 of 12 requests, 70 s, about 2 min left")
    told.given_up(starts[1].runs)
    assert told.seconds_left() == pytest.approx(30)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
