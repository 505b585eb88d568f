"""The start command of the plain server that matches a speculative one, from its server_args."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from workbench.analysis.diagnosis.reading import Reading
from workbench.analysis.diagnosis.words import shell_word
from workbench.analysis.wording import one_of

# Differ from server to server without a bearing on speed, or belong to the drafter; copied by a word of their own.
_NOT_COPIED = {
    "model_path",
    "max_running_requests",
    "host",
    "port",
    "grpc_http_sidecar_port",
    "nccl_port",
    "dist_init_addr",
    "disaggregation_bootstrap_port",
    "encoder_bootstrap_port",
    "engine_info_bootstrap_port",
    "random_seed",
    "node_rank",
    "base_gpu_id",
    "decrypted_draft_config_file",
    "enable_multi_layer_eagle",
    "enable_draft_weights_cpu_backup",
}
# Named in place of being copied: not to be shown, or set by SGLang itself because of speculation.
_ONLY_NAMED = {"api_key", "admin_api_key", "ssl_keyfile_password", "disable_overlap_schedule"}
_OBJECT = re.compile(r"<?[A-Za-z_.]+[( ].*[)>]$")  # printed as Python, which no flag takes
# Defaults other than None, False and empty, as SGLang 0.4.6 to 0.5.18 print them; several where versions differ.
_DEFAULTS: dict[str, tuple[object, ...]] = {
    "tokenizer_mode": ("auto",),
    "tokenizer_backend": ("huggingface",),
    "tokenizer_worker_num": (1,),
    "detokenizer_worker_num": (1,),
    "load_format": ("auto",),
    "model_loader_extra_config": ("{}",),
    "model_impl": ("auto",),
    "model_config_parser": ("auto",),
    "json_model_override_args": ("{}",),
    "dtype": ("auto",),
    "kv_cache_dtype": ("auto",),
    "schedule_policy": ("fcfs",),
    "schedule_conservativeness": (1.0,),
    "priority_scheduling_preemption_threshold": (10,),
    "page_size": (1,),
    "swa_full_tokens_ratio": (0.8,),
    "radix_eviction_policy": ("lru",),
    "max_prefill_tokens": (16384,),
    "num_continuous_decode_steps": (1,),
    "scheduler_recv_interval": (1,),
    "device": ("cuda",),
    "gpu_id_step": (1,),
    "watchdog_timeout": (300, 300.0),
    "nnodes": (1,),
    "tp_size": (1,),
    "pp_size": (1,),
    "dp_size": (1,),
    "ep_size": (1,),
    "attn_cp_size": (1,),
    "moe_dp_size": (1,),
    "load_balance_method": ("round_robin", "auto"),
    "dsa_prefill_cp_mode": ("round-robin-split", "in-seq-split"),
    "nsa_prefill_cp_mode": ("round-robin-split", "in-seq-split"),
    "prefill_cp_mode": ("in-seq-split",),
    "stream_interval": (1,),
    "batch_notify_size": (16,),
    "log_level": ("info",),
    "log_requests_level": (0, 2),
    "log_requests_format": ("text",),
    "load_snapshot_publish_interval": (15,),
    "load_watch_interval": (0.1,),
    "tokenizer_metrics_custom_labels_header": ("x-custom-labels", "x-customer-labels"),
    "decode_log_interval": (40,),
    "trace_modules": ("request",),
    "otlp_traces_endpoint": ("localhost:4317",),
    "oltp_traces_endpoint": ("localhost:4317",),
    "weight_version": ("default",),
    "file_storage_path": ("sglang_storage",),
    "sampling_defaults": ("model",),
    "asr_max_buffer_seconds": (60,),
    "asr_max_concurrent_sessions": (32,),
    "prefill_delayer_max_delay_passes": (30,),
    "max_loras_per_batch": (8,),
    "lora_eviction_policy": ("lru",),
    "lora_backend": ("csgmv", "triton"),
    "max_lora_chunk_size": (16,),
    "sampling_backend": ("flashinfer", "pytorch"),
    "grammar_backend": ("xgrammar",),
    "fp8_gemm_runner_backend": ("auto",),
    "fp4_gemm_runner_backend": ("auto",),
    "dsa_topk_backend": ("sgl-kernel",),
    "mamba_backend": ("triton",),
    "moe_a2a_backend": ("none",),
    "moe_runner_backend": ("auto",),
    "flashinfer_mxfp4_moe_precision": ("default",),
    "deepep_mode": ("auto",),
    "deepep_dispatcher_output_dtype": ("auto",),
    "init_expert_location": ("trivial",),
    "eplb_algorithm": ("auto",),
    "eplb_rebalance_num_iterations": (1000,),
    "eplb_min_rebalancing_utilization_threshold": (1.0,),
    "expert_distribution_recorder_buffer_size": (1000,),
    "mamba_full_memory_ratio": (0.9,),
    "mamba_radix_cache_strategy": ("auto",),
    "mamba_scheduler_strategy": ("auto", "no_buffer"),
    "mamba_track_interval": (256,),
    "mamba_ssm_dtype": ("float32",),
    "linear_attn_backend": ("triton",),
    "hicache_ratio": (2.0,),
    "hicache_write_policy": ("write_through", "write_through_selective"),
    "hicache_io_backend": ("kernel",),
    "hicache_mem_layout": ("page_first", "layer_first"),
    "hicache_storage_prefetch_policy": ("timeout", "best_effort"),
    "kt_method": ("AMXINT4",),
    "kt_threadpool_count": (2,),
    "offload_group_size": (-1,),
    "offload_num_in_group": (1,),
    "offload_prefetch_step": (1,),
    "offload_mode": ("cpu",),
    "triton_attention_num_kv_splits": (8,),
    "tbo_token_distribution_threshold": (0.48,),
    "torch_compile_max_bs": (32,),
    "kv_canary": ("none",),
    "kv_canary_real_data": ("none",),
    "dynamic_batch_tokenizer_batch_size": (32,),
    "dynamic_batch_tokenizer_batch_timeout": (0.002,),
    "disaggregation_mode": ("null",),
    "disaggregation_transfer_backend": ("mooncake",),
    "disaggregation_decode_polling_interval": (1,),
    "num_reserved_decode_tokens": (512,),
    "encoder_transfer_backend": ("zmq_to_scheduler",),
    "sm_group_num": (8, 3),
    "weight_loader_prefetch_num_threads": (4,),
    "remote_instance_weight_loader_backend": ("nccl",),
}
_SAME_AS_MODEL = ("tokenizer_path", "served_model_name")


def baseline_command(log: Reading) -> str:
    """The start command of the matching plain server, as far as the log states it, and what of it was left out."""
    if log.is_vllm:
        return "the same command without --speculative-config"
    if log.arg("model_path") is None:
        return "the same command without the --speculative-* flags (and with the same --max-running-requests)"
    if log.is_on_cpu and not log.is_embedded:
        # The line that tells the embedded engine from SGLang may be cut off.
        return "the same command without the --speculative-* flags (and with the same --max-running-requests)"
    program = "workbench.reference" if log.is_embedded else "sglang.launch_server"
    words = [f"python -m {program} --model-path", shell_word(log.arg("model_path"))]
    stated = [(name, value) for name, value in _stated(log) if not _is_left_out(name, value)]
    words += [f"{_flag(name)} {_words(value)}" for name, value in stated if value is not True]
    if log.running_limit is not None:
        words.append(f"--max-running-requests {log.running_limit}")
    words += [_flag(name) for name, value in stated if value is True]
    return f"`{' '.join(words)}`{_left_out(log)}"


def _stated(log: Reading) -> Iterator[tuple[str, object]]:
    """The arguments that are not at their default and not about speculation, in the order of the log."""
    for name, value in log.facts.server_args.items():
        if name.startswith("speculative_") or name in _NOT_COPIED or value in (None, False, "", [], {}, ()):
            # False and 0 are equal and both mean off; so are None and what is empty.
            continue
        is_default = any(value == default for default in _DEFAULTS.get(name, ()))
        if not is_default and not (name in _SAME_AS_MODEL and value == log.arg("model_path")):
            yield name, value


def _is_left_out(name: str, value: object) -> bool:
    return name in _ONLY_NAMED or (isinstance(value, str) and _OBJECT.match(value) is not None)


def _left_out(log: Reading) -> str:
    names = [name for name, value in _stated(log) if _is_left_out(name, value)]
    return f" (not copied: {one_of(names)})" if names else ""


def _flag(name: str) -> str:
    return shell_word(f"--{name.replace('_', '-')}")


def _words(value: object) -> str:
    """A value as the flag takes it: lists as words, mappings as JSON."""
    if isinstance(value, list | tuple):
        return " ".join(shell_word(item) for item in value)
    return shell_word(json.dumps(value, default=str) if isinstance(value, dict) else value)
