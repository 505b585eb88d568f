"""Error lines of a server: what their wording means and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.parse.records import EventKind


@dataclass(frozen=True, slots=True)
class Cause:
    """A wording in an error line, what it means and what to do about it."""

    wording: str
    title: str
    next_action: str
    doc: str | None = None


# First match wins, over all fatal lines of a log. Wordings and remedies: SGLang 0.4.4-0.5.23 and the reports named.
CAUSES = (
    Cause(
        "set_eagle3_layers_to_capture",
        "this SGLang version cannot capture this target's hidden states for EAGLE-3",
        "upgrade SGLang: the target's model class needs set_eagle3_layers_to_capture (Kimi-K2.5 has it since 0.5.10)",
        "sglang PR 19689",
    ),
    Cause(
        "hot_token_id",
        "EAGLE3 was started without an EAGLE-3 drafter",
        "pass an EAGLE-3 checkpoint with --speculative-draft-model-path, or --speculative-algorithm EAGLE for an "
        "EAGLE-1/2 drafter",
        "sglang 36528",
    ),
    Cause(
        "greater than the derived context_length",
        "the drafter's max_position_embeddings is shorter than the serving context",
        "lower --context-length to the drafter's max_position_embeddings, or retrain the drafter on longer text; "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 starts it, and acceptance falls beyond the trained length",
        "SpecForge 249",
    ),
    Cause(
        "selected index k out of range",
        "more draft tokens are asked for than the draft tree has candidates",
        "set --speculative-num-draft-tokens to at most 1 + topk + (steps - 1) x topk^2",
    ),
    Cause(
        "'>' not supported between instances of 'NoneType' and 'int'",
        "speculative steps were set without topk",
        "set all three: --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
    ),
    Cause(
        "Cannot find the config file for",
        "the drafter inherits the target's quantization, which its files do not have",
        "add --speculative-draft-model-quantization unquant",
        "sglang PR 28196",
    ),
    Cause(
        "Attempted to load weight",
        "a tensor of the checkpoint has the wrong shape",
        "run: workbench check DRAFT_DIR --target TARGET_DIR",
    ),
    Cause(
        "must match the size of tensor",
        "captured hidden states and the drafter's fc layer differ in width",
        "run: workbench check DRAFT_DIR --target TARGET_DIR, and compare eagle_aux_hidden_state_layer_ids with the "
        "layers the drafter was trained on",
        "sglang 32226",
    ),
    Cause(
        "try to increase --mem-fraction-static",
        "weights and KV cache do not fit into the memory share that SGLang was given",
        "raise --mem-fraction-static by 0.05, or shard over more GPUs with --tp-size",
    ),
    Cause(
        "Capture cuda graph failed",
        "memory ran out while CUDA graphs were captured",
        "lower --mem-fraction-static by 0.05, or capture smaller batches (--cuda-graph-max-bs, from 0.5.14 "
        "--cuda-graph-max-bs-decode)",
    ),
    Cause(
        "Try to lower your batch size",
        "the KV cache could not hold the running requests",
        "lower --max-running-requests, or raise --mem-fraction-static",
    ),
    Cause(
        "exit code: -9",
        "a process was killed from outside, most often for lack of host memory",
        "look for 'Out of memory' in dmesg and give the host more memory",
    ),
)
FATAL = {
    EventKind.OOM: Cause(
        "",
        "the GPU ran out of memory",
        "lower --mem-fraction-static by 0.05; if it persists lower --max-running-requests and the largest graph batch",
    ),
    EventKind.NCCL: Cause(
        "",
        "a collective between the GPUs did not finish",
        "restart with NCCL_DEBUG=INFO and compare `nvidia-smi topo -m`; on PCIe-only machines try NCCL_P2P_DISABLE=1, "
        "which is slower but cures hangs",
        "sglang 3666, 4054, 15435",
    ),
    EventKind.EXCEPTION: Cause(
        "", "the scheduler raised an exception", "read the traceback that follows the line named here"
    ),
    EventKind.WATCHDOG: Cause(
        "",
        "the scheduler stopped making progress",
        "read the stack dump after the line named here; raise --watchdog-timeout only if a step may take so long",
    ),
    EventKind.CHILD_DEATH: Cause(
        "", "a child process of the server died", "read the first traceback above the line named here"
    ),
}
