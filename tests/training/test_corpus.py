"""Corpora on disk: what is written is read, what is damaged is refused, subsets lie within each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import InputError, UsageError
from workbench.hashes import hash_file
from workbench.training.corpus import Corpus, read_corpus, split, subset, token_counts, write_about, write_tasks
from workbench.training.parts import Sample, distinct_4, write_part

TASKS = ["poems", "sums"]
RUN = "a1b2"


def sample(
    ids: Sequence[int], *, prompt_tokens: int = 1, prompt: int = 0, answer: int = 0, task: str = "poems"
) -> Sample:
    return Sample(np.asarray(ids, np.uint16), prompt_tokens, prompt, answer, task)


def write(
    folder: Path, *parts: Sequence[Sample], finished: bool = True, vocab_size: int = 100, **about: object
) -> Path:
    folder.mkdir(exist_ok=True)
    for number, samples in enumerate(parts):
        path = folder / f"part-{number:05}.npz"
        write_part(path, samples, tasks={t: i for i, t in enumerate(TASKS)}, run=RUN, vocab_size=vocab_size)
    listed = {path.name: hash_file(path) for path in sorted(folder.glob("part-*.npz"))}
    base = {"run": RUN, "tasks": TASKS, "vocab_size": vocab_size, "finished": finished, "parts": listed}
    write_about(folder, {**base, **about})
    return folder


def many(prompts: int, *, answers: int = 1, tasks: int = 1) -> Corpus:
    """Prompt p of task p mod ``tasks``; ids tell prompt and answer."""
    samples = [
        sample([1, p % 50, a], prompt=p, answer=a, task=f"t{p % tasks}") for a in range(answers) for p in range(prompts)
    ]
    return Corpus(samples, {})


# --- on disk -----------------------------------------------------------------------------------------------------


def test_samples_come_back_in_order(tmp_path: Path) -> None:
    first = [sample([5, 6, 7], prompt_tokens=2, prompt=3, task="sums"), sample([8, 9], prompt=4)]
    corpus = read_corpus(write(tmp_path / "c", first, [sample([10, 11, 2], prompt=3, answer=1, task="sums")]))
    read = [(s.ids.tolist(), s.prompt_tokens, s.prompt, s.answer, s.task) for s in corpus.samples]
    assert read == [([5, 6, 7], 2, 3, 0, "sums"), ([8, 9], 1, 4, 0, "poems"), ([10, 11, 2], 1, 3, 1, "sums")]
    assert corpus.response_tokens == 1 + 1 + 2
    assert corpus.prompts == (3, 4)
    assert corpus.samples[0].ids.dtype == np.uint16


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    big = Sample(np.asarray([1, 150_000], np.uint32), 1, 0, 0, "poems")
    corpus = read_corpus(write(tmp_path / "c", [big], vocab_size=160_000))
    assert corpus.samples[0].ids.tolist() == [1, 150_000]


def test_an_empty_part_is_fine_but_an_empty_corpus_is_not(tmp_path: Path) -> None:
    assert len(read_corpus(write(tmp_path / "a", [], [sample([1, 2])])).samples) == 1
    with pytest.raises(InputError, match="holds no sample"):
        read_corpus(write(tmp_path / "b", []))


def test_filters_are_applied_on_reading_and_counted(tmp_path: Path) -> None:
    loop = sample([9, *[1, 2] * 20], prompt=1)  # 37 runs of four, two different ones
    short = sample([9, 1, 2, 3], prompt=2)
    good = sample([9, *range(10, 40)], prompt=3)
    filters = {"min_response_tokens": 24, "min_distinct_4": 0.5}
    folder = write(tmp_path / "c", [loop, short, good], filters=filters)
    corpus = read_corpus(folder)
    assert [s.prompt for s in corpus.samples] == [3]
    assert corpus.about["filtered"] == {"short": 1, "repetitive": 1}
    assert len(read_corpus(folder, filtered=False).samples) == 3


def test_the_digest_is_of_the_content_not_of_the_parts(tmp_path: Path) -> None:
    a, b = sample([1, 2, 3]), sample([4, 5], prompt=1)
    whole, cut = write(tmp_path / "whole", [a, b]), write(tmp_path / "cut", [a], [b])
    assert read_corpus(whole).digest == read_corpus(cut).digest
    other = write(tmp_path / "other", [a, sample([4, 6], prompt=1)])
    assert read_corpus(other).digest != read_corpus(whole).digest
    moved = write(tmp_path / "moved", [a, sample([4, 5], prompt_tokens=2, prompt=1)])
    assert read_corpus(moved).digest != read_corpus(whole).digest


def test_an_unfinished_corpus_is_refused_unless_asked_for(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", [sample([1, 2])], finished=False)
    with pytest.raises(InputError, match="not finished"):
        read_corpus(folder)
    assert len(read_corpus(folder, unfinished=True).samples) == 1


def test_a_part_that_is_missing_changed_or_cut_off_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", [sample([1, 2])], [sample([3, 4], prompt=1)])
    part = folder / "part-00001.npz"
    whole = part.read_bytes()
    part.write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"part-00001\.npz: is not the file"):
        read_corpus(folder)
    part.unlink()
    with pytest.raises(InputError, match=r"part-00001\.npz: missing"):
        read_corpus(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no zip at all"])
def test_bytes_that_are_no_part_are_refused(tmp_path: Path, content: bytes) -> None:
    folder = write(tmp_path / "c", [sample([1, 2])], finished=False)
    (folder / "part-00001.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"part-00001\.npz: no part of a corpus"):
        read_corpus(folder, unfinished=True)


def test_a_part_of_another_run_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", [sample([1, 2])], finished=False)
    write_part(folder / "part-00001.npz", [sample([1, 2])], tasks={"poems": 0}, run="other", vocab_size=100)
    with pytest.raises(InputError, match="is of run other, the corpus is of a1b2"):
        read_corpus(folder, unfinished=True)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("offsets", np.array([0, 9], np.int64), "do not cover"),
        ("offsets", np.array([0, 1, 2], np.int64), "differ in length"),
        ("prompt_tokens", np.array([3], np.int32), "shorter than its prompt"),
        ("prompt_tokens", np.array([0], np.int32), "shorter than its prompt"),
        ("task", np.array([7], np.int16), "task is not in the list"),
        ("tokens", np.array([1.0, 2.0]), "tokens are float64"),
        ("answer", np.array([0], np.int64), "answer is int64"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(tmp_path: Path, name: str, value: np.ndarray, said: str) -> None:
    folder = write(tmp_path / "c", [sample([1, 2])], finished=False)
    path = folder / "part-00000.npz"
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, name: value})
    with pytest.raises(InputError, match=said):
        read_corpus(folder, unfinished=True)


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", [sample([1, 2])], finished=False)
    np.savez(folder / "part-00001.npz", tokens=np.array([{"a": 1}], object), run=np.array(RUN))
    with pytest.raises(InputError, match="no part of a corpus"):
        read_corpus(folder, unfinished=True)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99}'])
def test_a_corpus_json_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "corpus.json").write_text(text)
    with pytest.raises(InputError, match=r"corpus\.json"):
        read_corpus(tmp_path)


def test_a_list_of_parts_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", [sample([1, 2])])
    about = json.loads((folder / "corpus.json").read_text())
    write_about(folder, {**about, "parts": {"../part-00000.npz": "0"}})
    with pytest.raises(InputError, match="missing"):
        read_corpus(folder)


# --- distinct-4 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], 1.0),
        ([1, 1, 1], 1.0),
        ([7] * 8, 1 / 5),
        ([1, 2, 3, 4, 1, 2, 3, 4], 4 / 5),  # 1234 2341 3412 4123 1234
        ([1, 2, 3, 4, 5], 1.0),
    ],
)
def test_distinct_4(ids: list[int], expected: float) -> None:
    assert distinct_4(np.asarray(ids, np.uint16)) == pytest.approx(expected)


# --- subsets and splits ------------------------------------------------------------------------------------------


def test_subsets_lie_within_each_other() -> None:
    corpus = many(40, answers=2)
    sets = [set(subset(corpus, n, seed=0).prompts) for n in (5, 10, 20, 40)]
    assert [len(prompts) for prompts in sets] == [5, 10, 20, 40]
    assert sets[0] < sets[1] < sets[2] < sets[3]
    assert sets[0] != set(subset(corpus, 5, seed=1).prompts)
    assert sets[0] != set(range(5))


def test_all_answers_to_a_prompt_go_together() -> None:
    part = subset(many(20, answers=3), 4, seed=7)
    assert sorted(s.answer for s in part.samples) == [0] * 4 + [1] * 4 + [2] * 4
    assert part.about["subset"] == {"prompts": 4, "seed": 7}


def test_an_order_does_not_depend_on_the_other_prompts() -> None:
    """A prompt that a filter removed moves no other one."""
    whole = many(30)
    without = Corpus([s for s in whole.samples if s.prompt != 11], {})
    assert set(subset(without, 10, seed=0).prompts) - set(subset(whole, 11, seed=0).prompts) == set()


@pytest.mark.parametrize("count", [0, 41])
def test_a_subset_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="the corpus has 40"):
        subset(many(40), count, seed=0)


def test_a_split_holds_out_whole_tasks_and_random_prompts() -> None:
    corpus = many(400, answers=2, tasks=100)  # 100 tasks of 4 prompts
    train, out = split(corpus, held_out=40, seed=3)
    assert len(out.prompts) == 40
    assert not set(train.prompts) & set(out.prompts)
    assert len(train.samples) + len(out.samples) == len(corpus.samples)
    whole = out.about["held_out_tasks"]
    assert len(whole) == 5  # 20 of the 40 prompts, 4 each
    assert not {s.task for s in train.samples} & set(whole)
    assert len({s.task for s in out.samples}) > len(whole)
    again = split(corpus, held_out=40, seed=3)
    assert again[1].digest == out.digest != split(corpus, held_out=40, seed=4)[1].digest


def test_one_task_is_not_held_out_whole() -> None:
    train, out = split(many(50), held_out=10, seed=0)
    assert out.about["held_out_tasks"] == []
    assert (len(out.prompts), len(train.prompts)) == (10, 40)


@pytest.mark.parametrize("held_out", [5, 9])
def test_a_split_that_leaves_nothing_is_refused(held_out: int) -> None:
    with pytest.raises(UsageError, match="answers are left for 0 to train on and 5 to judge by"):
        split(many(5), held_out=held_out, seed=0)


def test_what_is_held_out_does_not_depend_on_what_was_answered() -> None:
    """No prompt that one corpus of a set trains on is judged by with another, whatever filters or limits took away."""
    tasks = {n: f"t{n % 100}" for n in range(400)}
    whole = Corpus(many(400, tasks=100).samples, {}, tasks)
    some = Corpus([s for s in whole.samples if s.prompt % 3 and s.prompt < 300], {}, tasks)
    train, out = split(whole, held_out=40, seed=3)
    train_some, out_some = split(some, held_out=40, seed=3)
    assert set(out_some.prompts) == set(out.prompts) & set(some.prompts)
    assert set(train_some.prompts) == set(train.prompts) & set(some.prompts)
    assert train.set_tasks == tasks


def test_the_tasks_of_the_set_come_back(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", [sample([1, 2], prompt=2)])
    assert read_corpus(folder).set_tasks == {}
    write_tasks(folder, [1, 1, 0])
    assert read_corpus(folder).set_tasks == {0: "sums", 1: "sums", 2: "poems"}
    (folder / "tasks.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=r"tasks\.npy: no list of tasks"):
        read_corpus(folder)


def test_token_counts_are_of_the_answers() -> None:
    corpus = Corpus([sample([1, 2, 3, 3], prompt_tokens=2), sample([1, 3, 5], prompt=1)], {"vocab_size": 7})
    assert token_counts(corpus).tolist() == [0, 0, 0, 3, 0, 1, 0]
    assert token_counts(corpus, response_only=False).tolist() == [0, 2, 1, 3, 0, 1, 0]
