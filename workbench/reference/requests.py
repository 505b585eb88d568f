"""What a ``/generate`` body may ask for. Anything that this engine does not do is refused, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from workbench.chat import Chat

DEFAULT_MAX_NEW_TOKENS = 128
_ONE = "one request holds one prompt, batches are not supported"
_OWN_KEYS = frozenset({"text", "input_ids", "sampling_params", "stream", "rid"})
# Settings that change nothing in greedy decoding, or are read below.
_SAMPLING_KEYS = frozenset(
    {
        *("temperature", "max_new_tokens", "ignore_eos", "stop_token_ids", "skip_special_tokens"),
        *("top_p", "top_k", "min_p", "spaces_between_special_tokens"),
    }
)
_NEUTRAL: Mapping[str, object] = {
    "n": 1,
    "repetition_penalty": 1,
    "logprob_start_len": -1,
}


class RefusedRequest(Exception):
    """A request that gets HTTP 400; the message is what the client reads."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A greedy request, checked against the model."""

    rid: str
    input_ids: tuple[int, ...]
    max_new_tokens: int
    stop_ids: frozenset[int]
    skip_special_tokens: bool
    stream: bool


@dataclass(frozen=True, slots=True)
class ModelLimits:
    vocab_size: int
    context_len: int
    eos_token_ids: frozenset[int]


def read_request(body: object, limits: ModelLimits, chat: Chat | None) -> GenerateRequest:
    """Check a decoded body.

    Raises
    ------
    RefusedRequest
        When something is malformed, out of the model's range or not supported here.
    """
    if not isinstance(body, dict):
        raise RefusedRequest("the body is not a JSON object")
    _refuse_unsupported(body, _OWN_KEYS)
    params = body.get("sampling_params") or {}
    if not isinstance(params, dict):
        raise RefusedRequest(f"sampling_params is not an object: {_ONE}")
    _refuse_unsupported(params, _SAMPLING_KEYS)
    _refuse_sampling(params)
    input_ids = _input_ids(body, limits, chat)
    max_new_tokens = _whole(params, "max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    _check_length(len(input_ids), max_new_tokens, limits)
    stop_ids = frozenset(_id_list(params.get("stop_token_ids") or [], "stop_token_ids", limits))
    return GenerateRequest(
        rid=_rid(body.get("rid")),
        input_ids=tuple(input_ids),
        max_new_tokens=max_new_tokens,
        stop_ids=stop_ids if _flag(params, "ignore_eos", False) else stop_ids | limits.eos_token_ids,
        skip_special_tokens=_flag(params, "skip_special_tokens", True),
        stream=_flag(body, "stream", False),
    )


def _refuse_unsupported(given: Mapping[str, object], known: frozenset[str]) -> None:
    """A setting with a value that means "off" is the same as none."""
    for key, value in given.items():
        if key in known or not value or (key in _NEUTRAL and value == _NEUTRAL[key]):
            continue
        raise RefusedRequest(f"{key}={str(value)[:60]!r} is not supported by the embedded engine")


def _refuse_sampling(params: Mapping[str, object]) -> None:
    temperature = params.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or temperature < 0:
        raise RefusedRequest(f"temperature {temperature!r} is no number of at least 0")
    if temperature > 0 and params.get("top_k") != 1:
        raise RefusedRequest(
            f"temperature {temperature:g} asks for sampling (it is 1 when not given), which the embedded engine does "
            "not do: send temperature 0"
        )


def _input_ids(body: Mapping[str, object], limits: ModelLimits, chat: Chat | None) -> list[int]:
    text, ids = body.get("text"), body.get("input_ids")
    if (text is None) == (ids is None):
        raise RefusedRequest("either text or input_ids should be provided")
    if ids is not None:
        return _id_list(ids, "input_ids", limits)
    if not isinstance(text, str):
        raise RefusedRequest(f"text is no string: {_ONE}")
    if chat is None:
        raise RefusedRequest("the server runs with --skip-tokenizer-init: send input_ids")
    encoded = chat.encode(text)
    if not encoded:
        raise RefusedRequest("text is empty")
    return encoded


def _id_list(ids: object, key: str, limits: ModelLimits) -> list[int]:
    if not isinstance(ids, list) or (key == "input_ids" and not ids):
        raise RefusedRequest(f"{key} is no list of token ids")
    if any(isinstance(item, list) for item in ids):
        raise RefusedRequest(f"{key} holds lists: {_ONE}")
    if not all(type(item) is int and 0 <= item < limits.vocab_size for item in ids):
        raise RefusedRequest(f"{key} holds something else than ids from 0 to {limits.vocab_size - 1}")
    return ids


def _check_length(prompt: int, max_new_tokens: int, limits: ModelLimits) -> None:
    if prompt >= limits.context_len:
        raise RefusedRequest(
            f"The input ({prompt} tokens) is longer than the model's context length ({limits.context_len} tokens)."
        )
    if prompt + max_new_tokens > limits.context_len:
        raise RefusedRequest(
            f"Requested token count exceeds the model's maximum context length of {limits.context_len} tokens: "
            f"{prompt} of the input and {max_new_tokens} for the completion."
        )


def _whole(params: Mapping[str, object], key: str, default: int) -> int:
    value = params.get(key, default)
    if type(value) is not int or value < 1:
        raise RefusedRequest(f"{key} {value!r} is no whole number of at least 1")
    return value


def _flag(given: Mapping[str, object], key: str, default: bool) -> bool:
    value = given.get(key, default)
    if not isinstance(value, bool):
        raise RefusedRequest(f"{key} {value!r} is neither true nor false")
    return value


def _rid(value: object) -> str:
    if value is None:
        return uuid4().hex
    if not isinstance(value, str):
        raise RefusedRequest(f"rid is no string: {_ONE}")
    return value
