"""The page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from workbench.specforge.log import listed, parse
from workbench.specforge.order import Order

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "specforge.md").read_text(encoding="utf-8")


def test_the_order_on_the_page_is_valid() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    asked = Order.model_validate(yaml.safe_load(block))
    assert (asked.prompts, asked.learning_rate) == (8000, 4e-4)


def test_its_figures_are_those_of_the_kept_log() -> None:
    log = parse((ROOT / "tests" / "fixtures" / "specforge" / "train.log").read_text(encoding="utf-8"))
    right = listed(log.evaluations[-1], "eval/per_position_acc")
    assert [f"{share:g}" for share in right] == re.findall(r"0\.\d{6}", PAGE)
    assert [share * 64 for share in right] == [9, 9, 5]
