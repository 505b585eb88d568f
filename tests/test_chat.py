from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="chat needs the tokenizers package (extra: reference)")

from workbench.chat import load_chat
from workbench.errors import CheckpointError

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
USER = [{"role": "user", "content": "hi"}]
SPECIAL = ("<unk>", "<|im_start|>", "<|im_end|>")


def write_tokenizer(folder: Path, config: dict[str, object] | None) -> Path:
    """Byte-level BPE of three special tokens and every byte, without merges: one id a byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    names = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_prompt_is_rendered_with_the_folder_s_template_and_tokens(tmp_path: Path) -> None:
    config = {"chat_template": CHATML, "eos_token": {"content": "<|im_end|>", "special": True}}
    chat = load_chat(write_tokenizer(tmp_path, config))
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert chat.render(USER) == text
    ids = chat.prompt_ids(USER)
    assert ids[0] == 1 and ids.count(2) == 1
    assert len(ids) == len("user\nhi") + len("\n") + len("assistant\n") + 3
    assert chat.decode(ids) == "user\nhi\nassistant\n"
    assert chat.decode(ids, skip_special_tokens=False) == text


def test_a_template_beside_the_config_wins_and_a_named_list_has_a_default(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    assert load_chat(write_tokenizer(tmp_path, {"chat_template": named})).render(USER) == "yes"
    (tmp_path / "chat_template.jinja").write_text("beside")
    assert load_chat(tmp_path).render(USER) == "beside"


def test_blocks_leave_no_blank_lines_and_dates_are_unknown(tmp_path: Path) -> None:
    template = "{% if true %}\n  a\n  {% endif %}\n{{ 'date' if strftime_now is defined else 'none' }}"
    assert load_chat(write_tokenizer(tmp_path, {"chat_template": template})).render(USER) == "  a\nnone"


@pytest.mark.parametrize(
    ("template", "named"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "failed"),
        ("{{ ''.__class__.__mro__ }}", "failed"),
        ("{% if %}", "failed"),
    ],
)
def test_a_template_that_fails_is_an_error_that_says_why(tmp_path: Path, template: str | None, named: str) -> None:
    chat = load_chat(write_tokenizer(tmp_path, {} if template is None else {"chat_template": template}))
    with pytest.raises(CheckpointError, match=named):
        chat.render(USER)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: missing"):
        load_chat(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not a usable tokenizer"):
        load_chat(tmp_path)
    write_tokenizer(tmp_path, None)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        load_chat(tmp_path)
