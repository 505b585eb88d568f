"""Everything that reads what others wrote, each with real inputs to change and one way to read them."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import training_records
import tune_answer
from bench_files import AIPERF, EAGLE3, GRID, REPORT, SERVING, SPECFORGE_RUN, guidellm, vllm_log
from log_samples import N4_GRAPH, PLAIN_DECODE, PLAIN_PREFILL, recorded
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, safetensors_bytes, write_folder
from mutations import JSON, JSON_LINES, TEXT, YAML

from workbench.analysis import tuned as search
from workbench.checkpoint import INDEX_NAME, read_checkpoint
from workbench.errors import Problem
from workbench.importing.command import read_file
from workbench.importing.found import Stated
from workbench.index import build_index
from workbench.load.answer import AnswerFault, EventReader, read_answer
from workbench.notebook import check_parameters
from workbench.notebook.parameters import parameters_of
from workbench.parse.bench import parse_bench
from workbench.parse.metrics import accept_length_between, counters_between, parse_metrics
from workbench.parse.server_log import describe_kind, parse_log
from workbench.paths import TUNED
from workbench.preflight import check_draft
from workbench.preflight.campaign import check_campaign
from workbench.prompts import prompt_set
from workbench.recording import resolved
from workbench.spec import Target
from workbench.store import read_run, write_json, write_run
from workbench.summary import Figure
from workbench.sweep import expand, find_campaign, read_campaign_file
from workbench.table import load_tables
from workbench.table.columns import RUNS, frame
from workbench.table.training import load_training
from workbench.table.tuned import read_tuned
from workbench.trained import drafters_in

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "data" / "recorded"
FIXTURES = ROOT / "tests" / "fixtures"
_REQUESTS, _LINES = 12, 60


@dataclass(frozen=True)
class Reader:
    """``read`` gets bytes and an empty folder, and may raise nothing but errors of ours."""

    name: str
    kind: str
    seeds: Callable[[], tuple[bytes, ...]]
    read: Callable[[bytes, Path], None]
    needs: str | None = None
    """A package that it cannot do without."""


def readers() -> Iterator[Reader]:
    yield Reader("server_log", TEXT, _logs, _server_log)
    yield Reader("metrics", TEXT, _metrics, _read_metrics)
    yield Reader("bench", JSON_LINES, lambda: (_lines([SERVING, GRID]),), _bench)
    yield Reader("bench_reports", JSON, lambda: tuple(map(_json, BENCH_REPORTS)), _bench)
    yield Reader("imported_log", TEXT, lambda: (vllm_log().encode(), vllm_log("None").encode()), _imported)
    yield Reader("campaign_yaml", YAML, _campaigns, _campaign)
    yield Reader("training_yaml", YAML, lambda: (TRAINING,), _training)
    yield Reader("study_yaml", YAML, lambda: (STUDY,), _study)
    yield Reader("specforge_order", YAML, lambda: (ORDER,), _specforge_order, needs="torch")
    yield Reader("specforge_run", YAML, _specforge_runs, _specforge_run)
    yield Reader("safetensors", TEXT, lambda: (safetensors_bytes(draft_tensors()),), _safetensors)
    yield Reader("safetensors_header", JSON, _headers, _header)
    yield Reader("safetensors_index", JSON, lambda: (_json({"weight_map": {"a": "model.safetensors"}}),), _index)
    yield Reader("draft_config", JSON, _draft_configs, _draft_config)
    yield Reader("target_config", JSON, lambda: (_json(TARGET_CONFIG),), _target_config)
    yield Reader("tokenizer_config", JSON, lambda: (TOKENIZER_CONFIG,), _tokenizer_config, needs="tokenizers")
    yield Reader("prompts", JSON_LINES, lambda: (PROMPTS,), _prompts)
    yield Reader("training_record", JSON, lambda: (_record(),), _training_record)
    yield Reader("walk", JSON, lambda: (_json(WALK),), _walk)
    yield Reader("tune_answer", JSON, lambda: (_json(tune_answer.ANSWER),), _tuned)
    yield Reader("training_log", JSON_LINES, lambda: (_lines(training_records.LINES),), _training_log)
    yield Reader("summary", JSON, lambda: (SUMMARY,), _summary)
    yield Reader("notebook", JSON, lambda: ((ROOT / "notebooks" / "10_run_campaign.ipynb").read_bytes(),), _notebook)
    yield Reader("notebook_parameters", JSON, lambda: (_json(PARAMETERS),), _parameters)
    yield Reader("set_values", JSON, lambda: (_json(list(SETTINGS)),), _settings)
    yield Reader("answer", JSON, lambda: (ANSWER,), _answer)
    yield Reader("answer_stream", TEXT, lambda: (b"data: " + ANSWER + b"\n\ndata: [DONE]\n\n",), _answer_stream)
    yield Reader("gguf", TEXT, lambda: (GGUF,), _gguf)
    for place in RUN_FILES:
        yield _run_file(place)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _lines(values: list[Any]) -> bytes:
    return b"".join(_json(value) + b"\n" for value in values)


def _and_forget(_: object) -> None:
    return None


def _put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# --- logs, counters, results -------------------------------------------------------------------------------------


@cache
def _logs() -> tuple[bytes, ...]:
    own = b"".join(recorded("sim25-s3").splitlines(keepends=True)[:_LINES])
    return own, N4_GRAPH + PLAIN_PREFILL.encode() + PLAIN_DECODE.encode()


def _server_log(data: bytes, _: Path) -> None:
    describe_kind(parse_log(data))


@cache
def _metrics() -> tuple[bytes, ...]:
    run = next(RECORDED.glob("h200_step_cost/eagle3*"))
    return tuple(
        b"".join(gzip.decompress((run / f"metrics.{when}.prom.gz").read_bytes()).splitlines(keepends=True)[:_LINES])
        for when in ("before", "after")
    )


def _read_metrics(data: bytes, _: Path) -> None:
    text, other = data.decode("utf-8", "replace"), _metrics()[0].decode()
    parse_metrics(text)
    counters_between(other, text)
    accept_length_between(text, other)


BENCH_REPORTS: tuple[Any, ...] = (
    *(EAGLE3, REPORT, SPECFORGE_RUN, AIPERF),
    guidellm({"type_": "concurrent", "streams": 8}, {"type_": "poisson", "rate": 3.0}),
)


def _bench(data: bytes, folder: Path) -> None:
    parse_bench(data)
    _imported(data, folder)


def _imported(data: bytes, folder: Path) -> None:
    """All the way to the files of runs, and back."""
    problems: list[Problem] = []
    stated = Stated(speculative=True, target="T", prompts="p", concurrency=2)
    for number, run in enumerate(read_file(_put(folder / "given", data), stated, problems, folder)):
        place = folder / "c" / str(number)
        write_run(place, run.spec("c"), run.provenance(None), run.status(None), reported=run.figures)
        if run.server_info is not None:
            write_json(place / "resolved.json", resolved(run.server_info, ()))
        read_run(place)


def _answer(data: bytes, _: Path) -> None:
    try:
        answer = read_answer(data, 64)
    except AnswerFault:
        return
    _and_forget((answer.text_hash, answer.histogram, answer.e2e_latency_s, answer.finish_reason))


def _answer_stream(data: bytes, _: Path) -> None:
    reader = EventReader(64)
    try:
        for start in range(0, len(data), 37):
            reader.feed(data[start : start + 37], float(start))
        _and_forget(reader.finish().text_hash)
    except AnswerFault:
        return


META = {"id": "r", "finish_reason": {"type": "length"}, "prompt_tokens": 5, "completion_tokens": 8, "e2e_latency": 0.5}
META |= {"spec_verify_ct": 3, "spec_correct_drafts_histogram": [1, 1, 0, 1], "cached_tokens": 0}
ANSWER = _json({"text": "an answer", "output_ids": [1, 2, 3, 4, 5, 6, 7, 8], "meta_info": META})


# --- YAML, --set, prompts ----------------------------------------------------------------------------------------


@cache
def _campaigns() -> tuple[bytes, ...]:
    return tuple(
        (ROOT / "data" / "campaigns" / f"{name}.yaml").read_bytes() for name in ("quickstart", "kimi_k25_8gpu")
    )


def _campaign(data: bytes, folder: Path) -> None:
    check_campaign(expand(read_campaign_file(_put(folder / "c.yaml", data))))


def _settings(data: bytes, folder: Path) -> None:
    from workbench.training.study import read_study

    given = _as_texts(_plain(data))
    path = _put(folder / "c.yaml", _campaigns()[0])
    study = _put(folder / "t.yaml", STUDY)
    for setting in given:
        _ours_only(lambda one: expand(find_campaign(str(path), [one])), setting)
        _ours_only(lambda one: read_study(study, [one]), setting)


def _ours_only(read: Callable[[str], object], setting: str) -> None:
    from workbench.errors import WorkbenchError

    try:
        read(setting)
    except WorkbenchError:
        return


def _plain(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")


def _as_texts(value: object) -> list[str]:
    """What a command line can hold of it."""
    items = value if isinstance(value, list) else [value]
    return [item if isinstance(item, str) else json.dumps(item)[:2000] for item in items]


SETTINGS = ("repeats=2", "workload.num_prompts=3", "sweep.0.speculative_num_steps=[1, 2]", "server.env.A=b", "seed=1")
TRAINING = b"name: t\ntarget: models/t\ncorpus: data/c\nout: data/d\nprompts: 50\nepochs: 2\ndraft_vocab_size: 20\n"
STUDY = TRAINING + b"seed: [0, 1]\nsweep:\n- prompts: [10, all]\n  learning_rate: 1.0e-4\nevaluate:\n- prompts: gsm8k\n"


def _training(data: bytes, folder: Path) -> None:
    from workbench.training.config import read_config

    read_config(_put(folder / "t.yaml", data))


def _study(data: bytes, folder: Path) -> None:
    from workbench.training.study import read_study

    read_study(_put(folder / "t.yaml", data))


ORDER = b"name: d\ntarget: models/t\ncorpus: data/c\nepochs: 1\ndraft_vocab_size: 20\nsettings:\n  training.seed: 1\n"


def _specforge_order(data: bytes, folder: Path) -> None:
    from workbench.specforge.order import read_order

    read_order(_put(folder / "order.yaml", data), ["seed=1"])


@cache
def _specforge_runs() -> tuple[bytes, ...]:
    return tuple((FIXTURES / "specforge" / f"{name}_run.yaml").read_bytes() for name in ("trained", "online"))


def _specforge_run(data: bytes, folder: Path) -> None:
    from workbench.specforge.traps import findings, is_run_file, read_run

    path = _put(folder / "run.yaml", data)
    _put(folder / "draft_config.json", _draft_configs()[0])
    is_run_file(path)
    findings(read_run(path))


PROMPTS = b"".join(
    _json(line) + b"\n"
    for line in ({"name": "few", "source": "s", "licence": "MIT"}, {"text": "one", "task": "a"}, {"turns": ["two"]})
)


def _prompts(data: bytes, folder: Path) -> None:
    prompt_set(_put(folder / "few.jsonl", data))


# --- checkpoints -------------------------------------------------------------------------------------------------


@cache
def _headers() -> tuple[bytes, ...]:
    whole = safetensors_bytes(draft_tensors())
    (length,) = struct.unpack("<Q", whole[:8])
    return (whole[8 : 8 + length],)


def _safetensors(data: bytes, folder: Path) -> None:
    write_folder(folder / "draft", CONFIG)
    _put(folder / "draft" / "model.safetensors", data)
    _judge(folder)


def _header(data: bytes, folder: Path) -> None:
    whole = safetensors_bytes(draft_tensors())
    (length,) = struct.unpack("<Q", whole[:8])
    _safetensors(struct.pack("<Q", len(data)) + data + whole[8 + length :], folder)


def _index(data: bytes, folder: Path) -> None:
    _put(folder / "draft" / INDEX_NAME, data)
    _safetensors(safetensors_bytes(draft_tensors()), folder)


@cache
def _draft_configs() -> tuple[bytes, ...]:
    return _json(CONFIG), (FIXTURES / "drafts" / "smollm2_135m_eagle3_config.json").read_bytes()


def _draft_config(data: bytes, folder: Path) -> None:
    write_folder(folder / "draft", CONFIG, draft_tensors())
    _put(folder / "draft" / "config.json", data)
    _judge(folder)


def _target_config(data: bytes, folder: Path) -> None:
    write_folder(folder / "draft", CONFIG, draft_tensors())
    _judge(folder, data)


def _judge(folder: Path, target: bytes | None = None) -> None:
    _put(folder / "target" / "config.json", target or _json(TARGET_CONFIG))
    read = read_checkpoint(folder / "draft"), read_checkpoint(folder / "target", weights=False)
    for version in ("0.5.14", None):
        check_draft(*read, speculative_algorithm="EAGLE3", context_len=4096, sglang_version=version, tp_size=2)


TOKENIZER_CONFIG = _json(
    {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>"},
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | tojson }}{% endfor %}",
    }
)


def _tokenizer_config(data: bytes, folder: Path) -> None:
    from workbench.chat import load_chat

    _put(folder / "tokenizer.json", _tokenizer())
    _put(folder / "tokenizer_config.json", data)
    load_chat(folder).prompt_ids([{"role": "user", "content": "hello"}])


@cache
def _tokenizer() -> bytes:
    from tokenizers import Tokenizer, models

    return str(Tokenizer(models.WordLevel({"hello": 0, "?": 1}, unk_token="?")).to_str()).encode()


def _gguf(data: bytes, folder: Path) -> None:
    from workbench.reference.gguf import Gguf

    found = Gguf(_put(folder / "m.gguf", data))
    for name in found.tensors:
        _and_forget(found.read(name))


def _gguf_string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


_HEAD = (
    b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + _gguf_string(b"general.name") + struct.pack("<I", 8) + _gguf_string(b"m")
)
_HEAD += _gguf_string(b"sizes") + struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3)
_HEAD += _gguf_string(b"w") + struct.pack("<I2QIQ", 2, 4, 2, 0, 0)
GGUF = _HEAD + bytes(-len(_HEAD) % 32) + struct.pack("<8f", *range(8))


# --- trainings, pages, notebooks ---------------------------------------------------------------------------------


def _record() -> bytes:
    return _json(training_records.record())


def _training_record(data: bytes, folder: Path) -> None:
    _put(folder / "d" / "training.json", data)
    _ours_only(lambda _: drafters_in(str(folder), Target(name="T"), []), "")
    load_training(folder / "d")


WALK = {**training_records.HELD_OUT, "asked": {"prompt_set": "few", "num_prompts": 20, "max_new_tokens": 64}}


def _walk(data: bytes, folder: Path) -> None:
    _put(folder / "d" / "evaluated-few-20.json", data)
    _training_record(_record(), folder)


def _tuned(data: bytes, folder: Path) -> None:
    _put(folder / TUNED, data)
    found, _ = read_tuned(folder)
    _and_forget(search.tune_answer(found, frame(RUNS, [])))
    for shown in (search.ranking_view, search.residuals_view, search.commands):
        _and_forget(shown(found))
    for number in search.figures_of(found, "c").figures:
        _and_forget(Figure.model_validate(number))


def _training_log(data: bytes, folder: Path) -> None:
    _put(folder / "training_log.jsonl", data)
    _put(folder / "training.json", _record())
    load_training(folder)


SUMMARY = _json(
    {
        "kind": "report",
        "title": "A",
        "status": "ok",
        "finished_at": "2026-01-05T10:00:00+00:00",
        "answer": "It pays.",
        "headline": {"best speedup": "1.2x", "n": 3},
        "campaign": "c",
        "notebook": "20_report_campaign.ipynb",
        "duration_s": 1.5,
        "version": 1,
        "figures": [{"name": "speedup", "value": 1.2, "low": 1.1, "high": 1.3, "unit": "ratio", "run": "r"}],
        "not_verified": ["2 of 3 speedups not decidable"],
        "since_last_good": [
            {"run": "r", "label": "l", "figure": "decode speed", "unit": "tok/s", "verdict": "worse", "ratio": 0.8}
        ],
        "provenance": {"command": "c", "code": "d", "versions": {"Python": "3.11"}, "parameters": {"a": [1]}},
    }
)


def _summary(data: bytes, folder: Path) -> None:
    _put(folder / "a.html", b"<p>page</p>")
    _put(folder / "a.summary.json", data)
    build_index(folder)


def _notebook(data: bytes, folder: Path) -> None:
    parameters_of(_put(folder / "n.ipynb", data))


PARAMETERS = {"campaign": "quickstart", "set": ["repeats=2"], "force": False, "places": 2}


def _parameters(data: bytes, _: Path) -> None:
    given = _plain(data)
    for notebook in ("10_run_campaign", "30_compare_campaigns"):
        values = given if isinstance(given, dict) else {"campaign": given}
        _ours_only(lambda _, n=notebook, v=values: check_parameters(ROOT / "notebooks" / f"{n}.ipynb", v), "")  # type: ignore[misc]


# --- run folders -------------------------------------------------------------------------------------------------

_RUN = "run"
RUN_FILES = {
    "campaign.json": JSON,
    "drafters.json": JSON,
    "_checks/cross_check.json": JSON,
    "_checks/step_profile.json": JSON,
    "_checks/router.json": JSON,
    "_servers/s/server.log": TEXT,
    f"{_RUN}/spec.json": JSON,
    f"{_RUN}/status.json": JSON,
    f"{_RUN}/provenance.json": JSON,
    f"{_RUN}/windows.json": JSON,
    f"{_RUN}/resolved.json": JSON,
    f"{_RUN}/reported.json": JSON,
    f"{_RUN}/requests.jsonl": JSON_LINES,
    f"{_RUN}/gpu.jsonl": JSON_LINES,
    f"{_RUN}/metrics.after.prom": TEXT,
}
"""Files of a campaign folder, and what kind of text they hold."""


@cache
def campaign_files() -> dict[str, bytes]:
    """A campaign of two recorded runs, its long files cut."""
    source = RECORDED / "h200_step_cost"
    base, run = source / "baseline-default-c1-5818a1", next(source.glob("eagle3-*-s3-k1-n4-c1-*"))
    files = {name: (source / name).read_bytes() for name in ("campaign.json", "drafters.json")}
    files |= {f"_checks/{name}.json": (source / "_checks" / f"{name}.json").read_bytes() for name in CHECKS}
    files["_checks/router.json"] = (RECORDED / "h200_kimi_shape" / "_checks" / "router.json").read_bytes()
    reported = next(RECORDED.glob("h200_smollm2/*/reported.json")).read_bytes()
    for folder, name, log in ((base, "base", "b"), (run, _RUN, "s")):
        files |= {f"{name}/{each}.json": (folder / f"{each}.json").read_bytes() for each in RUN_JSON}
        files[f"{name}/resolved.json"] = gzip.decompress((folder / "resolved.json.gz").read_bytes())
        for each, most in (("requests.jsonl", _REQUESTS), ("gpu.jsonl", _REQUESTS), ("metrics.before.prom", 9999)):
            files[f"{name}/{each}"] = _unpacked(folder / f"{each}.gz", most)
        files[f"{name}/metrics.after.prom"] = _unpacked(folder / "metrics.after.prom.gz", 9999)
        status = json.loads(files[f"{name}/status.json"])
        files[f"_servers/{log}/server.log"] = _unpacked((folder / status["log_file"]).resolve(), 400)
        files[f"{name}/status.json"] = _json({**status, "log_file": f"../_servers/{log}/server.log"})
    files[f"{_RUN}/reported.json"] = reported
    return files


CHECKS = ("cross_check", "step_profile")
RUN_JSON = ("spec", "status", "provenance", "windows")


def _unpacked(path: Path, most: int) -> bytes:
    found = path if path.exists() else path.with_suffix("")
    data = found.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return b"".join(text.splitlines(keepends=True)[:most])


def write_campaign_files(folder: Path, **changed: bytes) -> Path:
    """The campaign in a folder; ``changed`` are files by their place."""
    for place, data in {**campaign_files(), **changed}.items():
        _put(folder / place, data)
    return folder


def _run_file(place: str) -> Reader:
    def read(data: bytes, folder: Path) -> None:
        read_whole(write_campaign_files(folder / "h200_step_cost", **{place: data}))

    name = f"run_folder_{place.rpartition('/')[2].replace('.', '_')}"
    return Reader(name, RUN_FILES[place], lambda: (campaign_files()[place],), read)


def read_whole(campaign: Path) -> None:
    """Every table and every log of a campaign."""
    tables = load_tables(campaign)
    for table in ("runs", "requests", "windows", "drafters", "offline", "settings"):
        _and_forget(getattr(tables, table).to_csv())
    for key in tables.logs:
        _and_forget(tables.logs[key])
    shutil.rmtree(campaign)
