"""Write model folders in the shape of Kimi-K2.5's language model, without weights, for SGLang's dummy loader.

    python tools/kimi_shape/make.py OUT --layers 4 --tokenizer DIR

OUT/target is a DeepSeek-V3 type with Kimi-K2.5's widths, experts and heads and the given number of layers, the first
dense; OUT/draft is an EAGLE-3 drafter of one layer for it. In bf16 one MoE layer takes 33.9 GB, the embeddings and the
head 4.7 GB. The tokenizer is any folder's: its ids must stay below 163,840.

Dummy weights route every token to the same few experts, which would make draft tokens look free. Put tools/kimi_shape/
hook on the server's PYTHONPATH and set ROUTER_NOISE=1: the router's logits are then random, so that n tokens reach
384 (1 - (1 - 8/384)^n) experts in the mean, and different tokens different ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

# What the drafter takes over from the target.
SHARED = {
    "hidden_size": 7168,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "vocab_size": 163840,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 163584,
    "eos_token_id": 163585,
    "intermediate_size": 18432,
}
# huggingface.co/moonshotai/Kimi-K2.5, config.json, text_config.
TARGET = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "pad_token_id": 163839,
    "num_nextn_predict_layers": 0,
}
DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "head_dim": 128,
    "draft_vocab_size": 32000,
}
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokenizer", type=Path, required=True)
    asked = parser.parse_args()
    if asked.layers < 2:
        parser.error("--layers: the first one is dense, so 2 or more")
    missing = [name for name in TOKENIZER if not (asked.tokenizer / name).is_file()]
    if missing:
        parser.error(f"--tokenizer: no {' and no '.join(missing)} in {asked.tokenizer}")
    # Three, as SGLang 0.5.14 sizes its buffers, and not 1 first: then it would take the layers behind these, and a
    # model of four layers has no three others. Read as inputs of the layers 1, 2 and 3.
    captured = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 1, 3]}}
    for name, config in (
        ("target", SHARED | TARGET | {"num_hidden_layers": asked.layers}),
        ("draft", SHARED | DRAFT | captured),
    ):
        folder = asked.out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        for file in TOKENIZER:
            shutil.copyfile(asked.tokenizer / file, folder / file)


if __name__ == "__main__":
    main()
