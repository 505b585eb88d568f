"""Secrets that are planted wherever a user has some, looked for in every file that comes of it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from live_campaigns import write_project
from planted import ENVIRONMENT, LAUNCH, PRINTED, found, workbench
from run_folders import write_text
from test_names import campaign

from workbench.errors import SpecError
from workbench.launch.redaction import blank_out
from workbench.paths import ROOT_ENV
from workbench.provenance import SECRETS, redact, without_secrets
from workbench.sweep import parse_campaign

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    launch = tmp_path / "launch" / "launch.py"
    script = str(ROOT / "tests" / "scripted_launch.py")
    write_text(launch, LAUNCH.format(names=list(ENVIRONMENT), printed=list(PRINTED.values()), script=script))
    project = write_project(tmp_path / "project", launch_prefix=[sys.executable, str(launch)])
    shutil.copytree(ROOT / "notebooks", project / "notebooks", dirs_exist_ok=True)
    shutil.copy(ROOT / "data" / "reference_points.csv", project / "data")
    return project


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_file_holds_what_is_secret(project: Path) -> None:
    printed = []
    code, said = workbench(project, "run", "small")
    assert code == 0, said
    printed.append(said)
    logs = list(project.glob("data/runs/small/_servers/*/server*.log"))
    assert logs and all(b"HF_TOKEN=****" in log.read_bytes() for log in logs)  # it was printed, and blanked out
    code, said = workbench(project, "report", "--campaign", "small")
    assert code in (0, 1), said
    printed.append(said)
    assert list(project.glob("reports/*.html"))
    raw = write_text(project / "given" / "raw.log", "\n".join(PRINTED.values()) + "\n" + logs[0].read_text())
    code, said = workbench(project, "diagnose", str(raw), "--page", "--all")
    assert code in (0, 1), said
    printed.append(said)
    raw.unlink()  # it was given to us so, and stays as it is
    code, said = workbench(project, "tune", "small", "--budget-minutes", "1")
    printed.append(said)
    # A server that does not start shows the end of its log.
    shutil.rmtree(project / "data" / "runs")
    code, said = workbench(project, "run", "small", "--force", all=["--start-fault", "exception"])
    assert code != 0
    printed.append(said)
    assert list(found(project)) == []
    assert [said for said in printed if "planted" in said.lower()] == []


@pytest.mark.parametrize("text", PRINTED.values(), ids=PRINTED)
def test_what_looks_like_a_secret_is_taken_out_of_text_and_logs(tmp_path: Path, text: str) -> None:
    assert "planted" not in redact(f"a {text} b").lower()
    log = write_text(tmp_path / "server.log", f"a {text} b\nnext\n")
    size = log.stat().st_size
    assert blank_out(log, []) >= 1
    assert b"planted" not in log.read_bytes().lower()
    assert (log.stat().st_size, log.read_bytes()[-5:]) == (size, b"next\n")
    assert blank_out(log, []) == 0


@pytest.mark.parametrize(
    "text",
    [
        "hf_model hf_hub_download hf_chat_template_name=None",
        "https://host:8000/v1 and me@host",
        "api_key=None, admin_api_key=None",
        "max_total_num_tokens='1234567'",
        "ask-me-anything-about-the-weather",
        "Bearer of news",
        "usage: [--api-key API_KEY] [--token TOKEN] --port 1",
        "use --api-key or --token, --api-key; the --token argument",
        "eos_token='</s>', bos_token: '<s>'",
        "API_KEY=None HF_TOKEN=$HF_TOKEN SSH_PATH=/usr/local",
        "http://127.0.0.1:35880/metadata?max_tokens=1234567&stream=true",
        "unexpected keys: 'api_key', 'model_path'",
        """'10.0.0.1:5 - "POST /generate HTTP/1.1" 200 OK'""",
    ],
)
def test_what_is_no_secret_stays(tmp_path: Path, text: str) -> None:
    assert redact(text) == text
    assert blank_out(write_text(tmp_path / "server.log", text), []) == 0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"launch_prefix": ["docker", "run", "-e", "HF_TOKEN=plantedenvtoken1"]}, "HF_TOKEN is a secret"),
        ({"launch_prefix": ["srun", "--token", "plantedenvtoken1"]}, "--token is a secret"),
        ({"launch_prefix": ["srun", "--api-key=plantedenvtoken1"]}, "--api-key is a secret"),
        ({"launch_prefix": ["env", "--split-string=HF_TOKEN=plantedenvtoken1 nice"]}, "HF_TOKEN is a secret"),
        ({"launch_prefix": ["docker", "run", "--env=HF_TOKEN=plantedenvtoken1"]}, "HF_TOKEN is a secret"),
        ({"launch_prefix": ["srun", "--export=ALL,GITLAB_PAT=plantedpat"]}, "GITLAB_PAT is a secret"),
        ({"launch_prefix": ["bash", "-c", "exec x --token plantedenvtoken1"]}, "--token is a secret"),
        *(
            ({"server": {"env": {name: "plantedvalue"}}}, f"{name} is a secret")
            for name in ("NGC_APIKEY", "DB_PASS", "SSH_PASSPHRASE", "GITLAB_PAT", "PAT", "pass")
        ),
        ({"server": {"flags": {"api_key": "plantedenvtoken1"}}}, "api_key is a secret"),
        ({"server": {"env": {"HF_TOKEN": "plantedenvtoken1"}}}, "HF_TOKEN is a secret"),
        ({"target": {"name": "T", "model_path": "https://u:plantedpass@h/m"}}, "target.model_path: .*holds a password"),
        ({"drafters": [{"name": "d", "model_path": "https://u:plantedpass@h/m"}]}, "holds a password"),
    ],
)
def test_secrets_in_a_campaign_are_refused_and_not_repeated(changes: dict[str, object], what: str) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        parse_campaign(campaign(**changes), name="c")
    assert "planted" not in str(caught.value)


def test_what_recorded_servers_printed_stays() -> None:
    logs = [log for log in (ROOT / "data" / "recorded").rglob("server*.log*") if log.is_file()]
    assert len(logs) > 100
    for log in logs:
        data = gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()
        said = [found[0] for pattern in SECRETS for found in re.finditer(pattern.encode(), data)]
        assert said == [], log


@pytest.mark.parametrize(
    "unit", ["api_key='", "\\", "api_key=\\'\\\\\\", "--token  ", "?token=&", "--token A_", "hf_aaa", "://a:"]
)
def test_a_line_of_megabytes_is_looked_through_once(unit: str) -> None:
    began = time.process_time()
    for text in (unit * (1_000_000 // len(unit)), "--token " + unit[0] * 1_000_000, "api_key='" + unit * 100_000):
        without_secrets(text)
    assert time.process_time() - began < 5  # a twentieth of it is usual; minutes, where each place looks at the rest


def test_names_of_secrets_alone_may_stand_in_a_launch_prefix() -> None:
    prefix = ["docker", "run", "-e", "HF_TOKEN", "--env=HF_TOKEN", "-e", "A=b", "--env=COMPASS=n", "image"]
    read = parse_campaign(campaign(launch_prefix=prefix), name="c")
    assert json.dumps(read.launch_prefix)
    assert ROOT_ENV
