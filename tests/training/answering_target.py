"""A target's small files, and a server that answers for it: each answer follows from the prompt's tokens."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from load_servers import answering, send

EOS = 0
VOCAB = 12
LETTERS = "abcdefghij"
Reply = dict[str, Any]
"""Ids 2 to 11 are the letters a to j; the template writes an "a" behind the message."""


def write_target(folder: Path) -> Path:
    """config.json, tokenizer.json and a chat template; no weights."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder.mkdir(parents=True, exist_ok=True)
    words = {"<eos>": EOS, "<unk>": 1, **{letter: 2 + i for i, letter in enumerate(LETTERS)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }} a")
    if not (folder / "config.json").is_file():
        (folder / "config.json").write_text(json.dumps({"vocab_size": VOCAB, "eos_token_id": EOS}))
    return folder


def write_prompts(path: Path, count: int) -> Path:
    """Prompt n is the digits of n as letters; its task is its last one."""
    lines = [json.dumps({"text": " ".join(letters(n)), "task": f"ends in {letters(n)[-1]}"}) for n in range(count)]
    path.write_text("\n".join(lines))
    return path


def letters(number: int) -> str:
    return "".join(LETTERS[int(digit)] for digit in str(number))


def prompt_ids(number: int) -> list[int]:
    return [2 + LETTERS.index(letter) for letter in letters(number)] + [2]


def reply(ids: Sequence[int], **changes: object) -> Reply:
    finish = {"type": "stop", "matched": ids[-1]} if ids and ids[-1] == EOS else {"type": "length", "length": len(ids)}
    meta = {"id": "x", "finish_reason": finish, "prompt_tokens": 1, "completion_tokens": len(ids), **changes}
    return {"text": "", "output_ids": list(ids), "meta_info": meta}


def answer_to(ids: Sequence[int]) -> list[int]:
    """Two tokens that tell the prompt, then the end."""
    return [ids[0], 1 + sum(ids) % 11, EOS]


@dataclass
class Answering:
    """What was asked, in order of arrival."""

    url: str = ""
    bodies: list[Reply] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self) -> list[tuple[int, ...]]:
        return [tuple(body["input_ids"]) for body in self.bodies]


@contextmanager
def target_server(
    answer: Callable[[int, Reply], Reply | int | None] | None = None,
    *,
    delay_s: float = 0.0,
    engine: str | None = None,
    last: int | None = None,
) -> Iterator[Answering]:
    """A server over real HTTP. ``answer`` gets the number of the request, from 1, and its body.

    It gives a reply, an HTTP status, or ``None`` to close the connection without a word.
    After request number ``last`` nobody listens any more.
    """
    seen = Answering()
    info = {"version": "0.5.14", "model_path": "/models/tiny", "random_seed": 7}
    if engine is not None:
        info |= {"engine": engine, "engine_version": "0.1.0"}

    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path != "/generate":
            send(handler, info)
            return
        asked = json.loads(body)
        with seen.lock:
            seen.bodies.append(asked)
            number = len(seen.bodies)
        time.sleep(delay_s)
        if last is not None and number > last:
            with contextlib.suppress(OSError):  # another request was the first to do so
                handler.server.socket.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        made = reply(answer_to(asked["input_ids"])) if answer is None else answer(number, asked)
        if made is None:
            handler.close_connection = True
        elif isinstance(made, int):
            send(handler, {"error": "no"}, status=made)
        else:
            send(handler, made)

    with answering(handle) as url:
        seen.url = url
        yield seen
