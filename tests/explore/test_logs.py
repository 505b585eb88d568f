from __future__ import annotations

from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from workbench.errors import LogError, UsageError
from workbench.explore import OpenCampaign, open_log

RECORDED = Path(__file__).parents[2] / "data" / "recorded" / "h200_smollm2" / "_servers"


def test_a_log_from_a_file(tmp_path: Path) -> None:
    log = open_log(RECORDED / "eagle-flag" / "server.log.gz")
    # As README shows: 309 decode lines, the wrong flag.
    assert log.windows["accept_len"].notna().sum() == 309
    diagnosis = log.diagnose()
    assert diagnosis.verdict.startswith("Wrong flag")
    assert diagnosis.findings[0].rule == "wrong_flag"
    assert f"{log.name}: Wrong flag" in repr(diagnosis)
    assert "Wrong flag" in repr(log) and "accept length" in repr(log)


def test_a_log_beside_its_baseline() -> None:
    log = open_log(RECORDED / "sim25-s3" / "server.log.gz", RECORDED / "base" / "server.log.gz")
    assert "speedup" in " ".join(log.diagnose().figures["name"])


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogError):
        open_log(tmp_path / "none.log")


def test_the_logs_of_a_campaign(opened: OpenCampaign) -> None:
    assert list(opened.logs) == opened.logs._ipython_key_completions_() == ["s-fast"]
    assert opened.logs.longest == "s-fast" and "s-fast" in opened.logs
    log = opened.logs["s-fast"]
    assert log.windows["gen_tok_per_s"].tolist() == [52.79, 51.00]
    assert "2 decode lines" in repr(log)
    assert log.diagnose().verdict == opened.diagnose().df["verdict"][0]
    assert repr(opened.logs).splitlines()[2].split()[:2] == ["s-fast", "2"]
    with pytest.raises(UsageError, match="no log of a server 's-fats'"):
        opened.logs["s-fats"]


def test_the_timeline_is_one_figure_with_its_rows(opened: OpenCampaign) -> None:
    view = opened.logs["s-fast"].timeline()
    (image,) = BeautifulSoup(view._repr_html_(), "html.parser").find_all("img")
    assert image["alt"].startswith("Timeline of a/s-fast")
    assert len(view.df) == 2
    assert "one time axis" in repr(view)
