"""Studies: what they expand to, in which order, and what is done with each run. The trainer is a stand-in but once."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.errors import SpecError
from workbench.paths import ROOT_ENV
from workbench.terminal import Lines
from workbench.training import judged, many
from workbench.training.config import TrainConfig, read_config
from workbench.training.many import listing, train_all, visible_gpus
from workbench.training.study import Study, is_study, read_study, write_config

KEYS: dict[str, Any] = {
    "name": "sizes",
    "target": "/models/t",
    "corpus": "/data/mix",
    "draft_vocab_size": 20,
    "passes": 3,
    "device": "cpu",
}
TRAINER = """#!{python}
import json, os, sys, time, yaml
from pathlib import Path
command, path = sys.argv[4], Path(sys.argv[5])
if command == "train":
    config = yaml.safe_load(path.read_text())
    out = Path(config["out"])
    with open(os.environ["SEEN"], "a") as seen:
        places = os.environ.get("CUDA_VISIBLE_DEVICES", "-"), os.environ.get("WORKBENCH_TRAININGS_ON_GPU", "-")
        seen.write(" ".join([config["name"], *places]) + "\\n")
    if config["seed"] == 9:
        print("workbench: it went wrong")
        sys.exit(3)
    if config["seed"] == 8:
        (out / "training_log.jsonl").write_text('{{"step": 7, "loss": 2.5}}\\n')
        time.sleep(60)
    record = {{"seen": {{"optimizer_steps": 6}}, "held_out": {{"accept_length": {{"1": 1.5, "3": 1.875}}}}}}
    (out / "training.json").write_text(json.dumps(record))
else:
    options = dict(zip(sys.argv[6::2], sys.argv[7::2]))
    Path(options["--out"]).write_text(json.dumps({{"accept_length": {{"1": 1.25}}, "options": options}}))
"""


def study(folder: Path, settings: tuple[str, ...] = (), **changes: Any) -> Study:
    content = {**KEYS, "out": str(folder / "out"), **changes}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in content.items() if value is not None}))
    return read_study(path, settings)


def of(planned: Study) -> list[tuple[object, int, float | None, int | None]]:
    return [(run.prompts, run.seed, run.epochs, run.steps) for run in planned.runs]


# --- what it means -----------------------------------------------------------------------------------------------


def test_ends_first_and_a_seed_after_the_other(tmp_path: Path) -> None:
    found = of(study(tmp_path, prompts=[1000, "all", 500, 4000], seed=[1, 0], epochs=2))
    sizes = [500, "all", 1000, 4000]
    assert found == [(size, seed, 2, None) for seed in (0, 1) for size in sizes]


def test_blocks_are_products_on_top_of_the_keys_outside(tmp_path: Path) -> None:
    blocks = [{"prompts": [500, "all"], "seed": [0, 1], "epochs": 2}, {"prompts": [500], "steps": 60}]
    found = of(study(tmp_path, sweep=blocks, seed=5))
    assert found == [(500, 0, 2, None), ("all", 0, 2, None), (500, 1, 2, None), ("all", 1, 2, None), (500, 5, None, 60)]
    assert len(study(tmp_path, sweep=[*blocks, *copy.deepcopy(blocks)]).runs) == 5


def test_a_name_tells_a_run_and_only_what_decides_about_it(tmp_path: Path) -> None:
    (first,) = study(tmp_path, prompts=[500], steps=60).runs
    assert first.name.startswith("n500-60steps-seed0-") and first.out == str(tmp_path / "out" / first.name)
    same = {"log_steps": 3, "target": "/elsewhere/t", "corpus": "other/mix", "name": "called"}
    (moved,) = study(tmp_path, prompts=[500], steps=60, **same).runs
    assert moved.name == first.name
    for change in ({"learning_rate": 0.1}, {"corpus": "/data/other"}, {"passes": 4}, {"steps": 61}, {"split_seed": 1}):
        (other,) = study(tmp_path, prompts=[500], **{"steps": 60, **change}).runs
        assert other.name[-6:] != first.name[-6:], change


def test_a_run_s_config_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A name of digits with an e between them is no number, learning rates are none of text."""
    (run,) = study(tmp_path, ("corpus='12e45678'", "learning_rate=1e-4"), prompts=[500], steps=60).runs
    assert (run.corpus, run.learning_rate) == ("12e45678", 0.0001)
    assert read_config(write_config(run)) == run


def test_what_is_a_study() -> None:
    assert not is_study({**KEYS, "prompts": 5, "betas": [0.9, 0.95], "capture": [1, 2, 3]})
    assert is_study({**KEYS, "prompts": [5]}) and is_study({**KEYS, "sweep": []}) and is_study({**KEYS, "evaluate": []})
    assert is_study({**KEYS, "capture": [[1, 2, 3], [0, 1, 2]]})


def test_settings_change_the_file(tmp_path: Path) -> None:
    assert of(study(tmp_path, ("prompts=[7, 8]", "epochs=3"), prompts=[500], epochs=2)) == [
        (7, 0, 3, None),
        (8, 0, 3, None),
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": [500]}, "exactly one of epochs"),
        ({"prompts": [500], "steps": 5, "passes": 99}, "study.yaml: passes"),
        ({"prompts": [500], "steps": 5, "setps": 3}, "study.yaml: setps"),
        ({"steps": [5], "out": None}, "a study has a name and out"),
        ({"steps": 5, "sweep": ["x"]}, "no list of blocks"),
        ({"steps": 5, "evaluate": [{"prompt": "mixed"}]}, "evaluate: prompts"),
        ({"steps": 5, "evaluate": 3}, "study.yaml: evaluate"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        study(tmp_path, **changes)


def test_the_shipped_studies_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parents[2] / "data" / "training"
    whole = read_study(folder / "h200_scaling.yaml")
    assert len(whole.runs) == 7 * 3 + 3 + 2 and len(whole.walks) == 4
    assert {run.passes for run in whole.runs} == {7} and {run.draft_vocab_size for run in whole.runs} == {16384}
    best = read_study(folder / "h200_best.yaml")
    # One folder and one map of the vocabulary, so that one campaign serves all.
    assert (len(best.runs), best.folder, best.walks) == (2, whole.folder, whole.walks)
    assert {run.draft_vocab_size for run in best.runs} == {16384}
    small = yaml.safe_load((folder / "smollm2_cpu_small.yaml").read_text())
    assert TrainConfig.model_validate(small).device == "cpu"


# --- what is done ------------------------------------------------------------------------------------------------


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the stand-in says which run it trained on which GPU."""
    program = tmp_path / "trainer"
    program.write_text(TRAINER.format(python=sys.executable))
    program.chmod(0o755)
    seen = tmp_path / "seen.txt"
    monkeypatch.setenv("SEEN", str(seen))
    monkeypatch.setenv(ROOT_ENV, str(Path(__file__).parents[2]))
    for module in (many, judged):
        monkeypatch.setattr(module.sys, "executable", str(program))
    return seen


def states(planned: Study, jobs: int = 1) -> dict[str, str]:
    results = train_all(planned, jobs=jobs, lines=Lines(quiet=True))
    return {result.name.split("-seed")[1][0]: result.state for result in results}


def test_what_is_finished_is_kept_and_one_that_fails_stops_no_other(tmp_path: Path, trainer: Path) -> None:
    first = study(tmp_path, prompts=5, steps=6, seed=[1, 9, 2])
    assert states(first) == {"1": "done", "9": "failed", "2": "done"}
    more = study(tmp_path, prompts=5, steps=6, seed=[1, 2, 3])
    assert states(more) == {"1": "kept", "2": "kept", "3": "done"}
    assert [line.split("-seed")[1][0] for line in trainer.read_text().splitlines()] == ["1", "2", "9", "3"]
    config = yaml.safe_load((Path(more.runs[2].out) / "train.yaml").read_text())
    assert TrainConfig.model_validate(config) == more.runs[2]
    said = listing(study(tmp_path, prompts=5, steps=6, seed=[1, 4, 9]))
    head, one, four, nine = said.splitlines()
    assert head.startswith("sizes: 1 of 3 drafters are done")
    assert one.endswith("done, 6 steps, held-out accept length 1.875 at 3")
    assert four.endswith("not begun") and nine.endswith("begun, begins")


def test_side_by_side_each_has_a_gpu_in_turn(tmp_path: Path, trainer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert visible_gpus() == ["4", "6"]
    planned = study(tmp_path, prompts=5, steps=6, seed=[1, 2, 3, 4], device="auto")
    assert set(states(planned, jobs=4).values()) == {"done"}
    # Which of them it sees, and how many of the trainings do.
    assert sorted(line.split()[1:] for line in trainer.read_text().splitlines()) == [["4", "2"]] * 2 + [["6", "2"]] * 2


def test_long_runs_are_spread_over_the_gpus(tmp_path: Path) -> None:
    planned = study(tmp_path, prompts=[500, 8000, "all"], epochs=20, seed=[0, 1])
    given = many.spread(planned.runs, ["0", "1", "1", "0", "0", "1"])
    # The two longest are one on each, and so are the next two, and the last.
    by_size = {size: {given[run.name] for run in planned.runs if run.prompts == size} for size in (500, 8000, "all")}
    assert all(places == {"0", "1"} for places in by_size.values())


def test_without_a_gpu_one_at_a_time(tmp_path: Path, trainer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []
    planned = study(tmp_path, prompts=5, steps=6, seed=[1, 2], device="auto")
    assert set(states(planned, jobs=2).values()) == {"done"}
    assert [line.split("-seed")[1][0] for line in trainer.read_text().splitlines()] == ["1", "2"]


def test_walks_are_made_with_every_drafter_and_kept(tmp_path: Path, trainer: Path) -> None:
    (tmp_path / "greedy").mkdir()
    about = {"max_new_tokens": 32, "temperature": 0.0}
    (tmp_path / "greedy" / "corpus.json").write_text(json.dumps(about))
    walks = [{"prompts": "mt_bench", "num_prompts": 5, "max_new_tokens": 16}]
    walks += [{"prompts": "mixed", "answers": str(tmp_path / "greedy")}]
    planned = study(tmp_path, prompts=5, steps=6, evaluate=walks)
    assert states(planned) == {"0": "done"} and states(planned) == {"0": "kept"}
    folder = Path(planned.runs[0].out)
    asked = {path.name: json.loads(path.read_text()) for path in folder.glob("evaluated-*.json")}
    assert {name: figures["asked"] for name, figures in asked.items()} == {
        "evaluated-mt_bench-5.json": {
            **{"prompt_set": "mt_bench", "num_prompts": 5, "max_new_tokens": 16, "temperature": 0.0}
        },
        "evaluated-mixed-64.json": {
            **{"prompt_set": "mixed", "num_prompts": 64, "max_new_tokens": 32, "temperature": 0.0}
        },
    }
    assert asked["evaluated-mt_bench-5.json"]["options"]["--limit"] == "5"
    assert asked["evaluated-mixed-64.json"]["options"]["--answers"] == str(tmp_path / "greedy")
    longer = study(tmp_path, prompts=5, steps=6, evaluate=[{**walks[0], "max_new_tokens": 24}])
    assert "1 of 1 walks are missing" in listing(longer)
    assert states(longer) == {"0": "done"}


def test_an_interrupt_stops_what_runs(tmp_path: Path, trainer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = study(tmp_path, prompts=5, steps=6, seed=[8, 3])
    log = Path(planned.runs[1].out) / "training_log.jsonl"

    class Impatient(Lines):
        def overwrite(self, text: str) -> None:
            if log.is_file():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_all(planned, jobs=1, lines=Impatient(quiet=True))
    assert listing(planned).splitlines()[2].endswith("begun, step 7, loss 2.500")


@pytest.mark.slow
def test_the_real_trainer(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs torch (extra: reference)")
    from training_files import config_for, greedy_samples, tiny_target, write_corpus

    write_corpus(tmp_path / "corpus", greedy_samples(tiny_target(tmp_path / "target"), 16))
    keys = config_for(tmp_path, held_out=4).model_dump(mode="json", exclude_none=True)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**keys, "prompts": [4, "all"]}))
    planned = read_study(tmp_path / "study.yaml")
    results = train_all(planned, jobs=1, lines=Lines(quiet=True))
    assert [result.state for result in results] == ["done", "done"], results
    records = [json.loads((Path(run.out) / "training.json").read_text()) for run in planned.runs]
    assert records[0]["data"]["prompts"] == 4
    whole = records[1]["data"]
    assert whole["samples"] + sum(whole["left_out"].values()) == 16 - 4
    assert [record["name"] for record in records] == [run.name for run in planned.runs]
