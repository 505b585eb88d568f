"""Records of packaged prompt sets."""

from __future__ import annotations

from workbench.packaged import PACKAGED, lines_of


def test_records_to_prompts() -> None:
    bench = [{"turns": ["first", "second"], "category": "math"}]
    assert list(lines_of(bench, PACKAGED["mt_bench"])) == [{"task": "math", "text": "first"}]
    code = [{"prompt": "def f():", "task_id": "HumanEval/0"}]
    assert list(lines_of(code, PACKAGED["humaneval"])) == [{"task": "coding", "text": "def f():"}]
