from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import SpecError
from workbench.training.config import read_config

WHOLE = "name: n\ntarget: t\ncorpus: c\nout: o\nsteps: 5\ndraft_vocab_size: 8\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_keys_and_changes_on_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    config = read_config(path, ["seed=3", "capture=[1, 14, 26]", "compile=false", "prompts=500"])
    assert (config.seed, config.capture, config.compile, config.prompts) == (3, (1, 14, 26), False, 500)
    # null takes a key away, so that another of its kind can be given.
    assert read_config(path, ["steps=null", "epochs=2.5"]).epochs == 2.5


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        (WHOLE + "lerning_rate: 1\n", [], "did you mean 'learning_rate'"),
        (WHOLE, ["epochs=1"], "exactly one of epochs, steps and minutes"),
        (WHOLE, ["steps=null"], "exactly one of epochs, steps and minutes"),
        (WHOLE, ["init_from=d"], "exactly one of draft_vocab_size"),
        (WHOLE, ["seed"], "is no change"),
        (WHOLE, ["learning_rate=0"], "learning_rate"),
        (WHOLE, ["seed=[1"], "is no value"),
        ("- 1\n", [], "holds no keys"),
        ("a: [\n", [], "cannot be read"),
    ],
)
def test_what_is_no_config_is_refused(tmp_path: Path, text: str, settings: list[str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read_config(written(tmp_path, text), settings)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_config(tmp_path / "none.yaml")


def test_what_may_differ_when_a_run_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    one = read_config(path)
    assert one.identity == read_config(path, ["device=cpu", "log_steps=1", "cache_gb=3"]).identity
    assert one.identity != read_config(path, ["seed=1"]).identity
