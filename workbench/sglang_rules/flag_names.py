"""Every flag of the server's command line, by the releases that have it.

Read from the argparse calls and argument fields of the wheels in `READ`. A flag that is in one of the two wheels around
a release counts as known to it, so that a release between them is never refused a flag that it has.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache

from workbench.sglang_rules.versions import Span, at_least, readable, version_key

READ = (*("0.4.6.post5", "0.4.9", "0.5.2", "0.5.5", "0.5.9", "0.5.12", "0.5.14", "0.5.16", "0.5.20", "0.5.23"),)
"""The releases that were read, oldest first."""

_NAMES: Mapping[Span, str] = {
    ("0.4.6.post5", "0.4.6.post5"): "enable-flashinfer-mla enable-flashmla n-share-experts-fusion",
    ("0.4.6.post5", "0.4.9"): "pdlb-url",
    ("0.4.6.post5", "0.5.2"): "enable-deepep-moe enable-ep-moe max-micro-batch-size",
    ("0.4.6.post5", "0.5.9"): """
        ds-channel-config-path ds-heavy-channel-num ds-heavy-channel-type ds-heavy-token-num
        ds-sparse-decode-threshold enable-double-sparsity
    """,
    ("0.4.6.post5", "0.5.12"): "debug-tensor-dump-inject enable-nan-detection",
    ("0.4.6.post5", "0.5.16"): """
        collect-tokens-histogram cuda-graph-bs cuda-graph-max-bs enable-expert-distribution-metrics stream-output
        torchao-config
    """,
    ("0.4.6.post5", "0.5.23"): """
        allow-auto-truncate api-key attention-backend base-gpu-id bucket-e2e-request-latency
        bucket-inter-token-latency bucket-time-to-first-token chat-template chunked-prefill-size completion-template
        constrained-json-whitespace-pattern context-length cpu-offload-gb data-parallel-size
        debug-tensor-dump-input-file debug-tensor-dump-output-folder decode-log-interval deepep-config deepep-mode
        delete-ckpt-after-loading device disable-chunked-prefix-cache disable-cuda-graph disable-cuda-graph-padding
        disable-custom-all-reduce disable-fast-image-processor disable-outlines-disk-cache disable-overlap-schedule
        disable-radix-cache disaggregation-bootstrap-port disaggregation-ib-device disaggregation-mode
        disaggregation-transfer-backend dist-init-addr dist-timeout download-dir dp-size dtype enable-cache-report
        enable-custom-logit-processor enable-dp-attention enable-dp-lm-head enable-eplb enable-hierarchical-cache
        enable-memory-saver enable-metrics enable-mixed-chunk enable-multimodal enable-nccl-nvls enable-p2p-check
        enable-request-time-stats-logging enable-tokenizer-batch-encode enable-torch-compile ep-dispatch-algorithm
        ep-num-redundant-experts ep-size eplb-rebalance-num-iterations expert-distribution-recorder-buffer-size
        expert-distribution-recorder-mode expert-parallel-size file-storage-path flashinfer-mla-disable-ragged
        gpu-id-step grammar-backend hicache-ratio hicache-size hicache-write-policy host init-expert-location
        is-embedding json-model-override-args kv-cache-dtype kv-events-config load-balance-method load-format
        log-level log-level-http log-requests log-requests-level lora-backend lora-paths max-loras-per-batch
        max-prefill-tokens max-running-requests max-total-tokens mem-fraction-static mm-attention-backend model-path
        moe-dense-tp-size nccl-init-addr nnodes node-rank num-continuous-decode-steps page-size pipeline-parallel-size
        port pp-size preferred-sampling-params quantization quantization-param-path random-seed reasoning-parser
        revision sampling-backend schedule-conservativeness schedule-policy served-model-name show-time-cost
        skip-tokenizer-init speculative-accept-threshold-acc speculative-accept-threshold-single speculative-algorithm
        speculative-draft-model-path speculative-eagle-topk speculative-num-draft-tokens speculative-num-steps
        speculative-token-map stream-interval tensor-parallel-size tokenizer-mode tokenizer-path tool-call-parser
        torch-compile-max-bs tp-size triton-attention-num-kv-splits triton-attention-reduce-in-fp32 trust-remote-code
        warmups watchdog-timeout
    """,
    ("0.4.9", "0.4.9"): "disable-overlap-cg-plan enable-flashinfer-moe impl",
    ("0.4.9", "0.5.2"): "debug-tensor-dump-prefill-only",
    ("0.4.9", "0.5.9"): """
        disaggregation-decode-dp disaggregation-decode-tp disaggregation-prefill-pp
    """,
    ("0.4.9", "0.5.12"): "hybrid-kvcache-ratio",
    ("0.4.9", "0.5.23"): """
        crash-dump-folder custom-weight-loader disable-shared-experts-fusion enable-flashinfer-allreduce-fusion
        enable-mscclpp enable-profile-cuda-graph enable-return-hidden-states enable-two-batch-overlap eplb-algorithm
        eplb-rebalance-layers-per-chunk model model-loader-extra-config nccl-port num-reserved-decode-tokens
        skip-server-warmup sleep-on-idle weight-loader-disable-mmap
    """,
    ("0.5.2", "0.5.2"): """
        enable-flashinfer-cutlass-moe enable-flashinfer-mxfp4-moe enable-flashinfer-trtllm-moe
        enable-triton-kernel-moe
    """,
    ("0.5.2", "0.5.16"): "prefill-round-robin-balance",
    ("0.5.2", "0.5.23"): """
        decode-attention-backend disable-flashinfer-cutlass-moe-fp4-allgather disable-hybrid-swa-memory
        enable-cudagraph-gc enable-lmcache enable-lora enable-metrics-for-all-schedulers enable-pdmux enable-symm-mem
        ep eplb-min-rebalancing-utilization-threshold flashinfer-mxfp4-moe-precision gc-warning-threshold-secs
        generation-tokens-buckets hicache-io-backend hicache-mem-layout hicache-storage-backend
        hicache-storage-backend-extra-config hicache-storage-prefetch-policy lora-target-modules mamba-ssm-dtype
        max-loaded-loras max-lora-rank max-mamba-cache-size max-queued-requests model-impl moe-a2a-backend
        moe-runner-backend numa-node offload-group-size offload-mode offload-num-in-group offload-prefetch-step
        prefill-attention-backend prompt-tokens-buckets scheduler-recv-interval sm-group-num
        speculative-attention-mode speculative-draft-model speculative-draft-model-revision swa-full-tokens-ratio
        tbo-token-distribution-threshold tokenizer-worker-num tool-server weight-version
    """,
    ("0.5.5", "0.5.5"): "kt-amx-method kt-amx-weight-path load-watch-interval",
    ("0.5.5", "0.5.9"): """
        mm-max-concurrent-calls mm-per-request-timeout multi-item-scoring-delimiter speculative-ngram-branch-length
        speculative-ngram-max-match-window-size speculative-ngram-min-match-window-size
    """,
    ("0.5.5", "0.5.12"): "enable-piecewise-cuda-graph",
    ("0.5.5", "0.5.16"): """
        nsa-decode-backend nsa-prefill-backend piecewise-cuda-graph-compiler piecewise-cuda-graph-max-tokens
        piecewise-cuda-graph-tokens
    """,
    ("0.5.5", "0.5.20"): "keep-mm-feature-on-device",
    ("0.5.5", "0.5.23"): """
        abort-on-priority-when-disabled checkpoint-engine-wait-weights-before-ready config
        constrained-json-disable-any-whitespace debug-tensor-dump-layers decrypted-config-file
        decrypted-draft-config-file disable-tokenizer-batch-decode disaggregation-decode-enable-offload-kvcache
        disaggregation-decode-polling-interval dynamic-batch-tokenizer-batch-size
        dynamic-batch-tokenizer-batch-timeout elastic-ep-backend enable-deterministic-inference
        enable-dynamic-batch-tokenizer enable-fp32-lm-head enable-priority-scheduling enable-single-batch-overlap
        enable-torch-symm-mem enable-trace enable-weights-cpu-backup grpc-mode kt-cpuinfer
        kt-max-deferred-experts-per-token kt-num-gpu-experts kt-threadpool-count lora-eviction-policy
        mamba-full-memory-ratio max-lora-chunk-size modelopt-checkpoint-restore-path modelopt-checkpoint-save-path
        modelopt-export-path modelopt-quant mooncake-ib-device otlp-traces-endpoint pdmux-config-path
        pp-max-micro-batch-size priority-scheduling-preemption-threshold quantize-and-serve radix-eviction-policy
        remote-instance-weight-loader-seed-instance-ip remote-instance-weight-loader-seed-instance-service-port
        remote-instance-weight-loader-send-weights-group-ports rl-on-policy-target sampling-defaults
        schedule-low-priority-values-first speculative-draft-load-format speculative-moe-runner-backend
        speculative-ngram-capacity speculative-ngram-match-type speculative-ngram-max-bfs-breadth
        speculative-ngram-min-bfs-breadth tokenizer-metrics-allowed-custom-labels
        tokenizer-metrics-custom-labels-header triton-attention-split-tile-size
    """,
    ("0.5.9", "0.5.9"): "disable-hicache-numa-detect",
    ("0.5.9", "0.5.12"): "custom-sigquit-handler",
    ("0.5.9", "0.5.16"): """
        enable-nsa-prefill-context-parallel mamba-scheduler-strategy nsa-prefill-cp-mode
    """,
    ("0.5.9", "0.5.23"): """
        admin-api-key attention-context-parallel-size attn-cp-size disable-flashinfer-autotune dllm-algorithm
        dllm-algorithm-config enable-attn-tp-input-scattered enable-broadcast-mm-inputs-process
        enable-draft-weights-cpu-backup enable-dynamic-chunking enable-fused-qk-norm-rope enable-layerwise-nvtx-marker
        enable-lora-overlap-loading enable-multi-layer-eagle enable-precise-embedding-interpolation
        enable-prefill-delayer enable-prefix-mm-cache enable-return-routed-experts enable-torch-compile-debug-mode
        encoder-only encoder-transfer-backend encoder-urls export-metrics-to-file export-metrics-to-file-dir
        extra-metric-labels fastapi-root-path forward-hooks fp4-gemm-backend fp8-gemm-backend hf-chat-template-name
        hierarchical-sparse-attention-extra-config kt-method kt-weight-path language-only limit-mm-data-per-request
        log-requests-format log-requests-target mamba-backend mamba-track-interval mm-enable-dp-encoder
        mm-process-config model-checksum moe-data-parallel-size moe-dp-size pp-async-batch-depth
        prefill-delayer-forward-passes-buckets prefill-delayer-max-delay-passes
        prefill-delayer-token-usage-low-watermark prefill-delayer-wait-seconds-buckets prefill-max-requests
        remote-instance-weight-loader-backend remote-instance-weight-loader-start-seed-via-transfer-engine
        rl-quant-profile soft-watchdog-timeout speculative-draft-attention-backend
        speculative-draft-model-quantization speculative-moe-a2a-backend uvicorn-access-log-exclude-prefixes
    """,
    ("0.5.12", "0.5.12"): "record-nolora-graph",
    ("0.5.12", "0.5.14"): "enable-deepep-waterfill",
    ("0.5.12", "0.5.16"): """
        disable-piecewise-cuda-graph enable-breakable-cuda-graph enable-prefill-context-parallel
        enforce-piecewise-cuda-graph prefill-cp-mode speculative-dflash-draft-window-size
    """,
    ("0.5.12", "0.5.20"): "elastic-ep-rejoin speculative-skip-dp-mlp-sync",
    ("0.5.12", "0.5.23"): """
        batch-notify-size debug-cuda-graph default-priority-value detokenizer-worker-num disable-priority-preemption
        disaggregation-decode-enable-radix-cache enable-adaptive-dispatch-to-encoder enable-aiter-allreduce-fusion
        enable-dp-attention-local-control-broadcast enable-elastic-expert-backup enable-forward-pass-metrics
        enable-fused-moe-sum-all-reduce enable-hisparse enable-http2 enable-mfu-metrics enable-mis
        enable-mm-global-cache enable-quant-communications enable-return-indexer-topk enable-ssl-refresh
        enable-streaming-session enable-strict-thinking enforce-disable-flashinfer-allreduce-fusion
        enforce-shared-experts-fusion engine-info-bootstrap-port experts-shared-outer-loras
        forward-pass-metrics-ipc-name forward-pass-metrics-worker-id gc-threshold grpc-http-sidecar-port
        hisparse-config incremental-streaming-output linear-attn-backend linear-attn-decode-backend
        linear-attn-prefill-backend lora-drain-wait-threshold lora-strict-loading lora-use-virtual-experts
        model-config-parser modelexpress-config msprobe-dump-config pre-warm-nccl prefill-delayer-max-delay-ms
        prefill-delayer-queue-min-ratio prefill-only-disable-kv-cache speculative-adaptive speculative-adaptive-config
        speculative-dflash-block-size speculative-draft-window-size speculative-ngram-external-corpus-max-tokens
        speculative-ngram-external-corpus-path speculative-ngram-external-sam-budget speculative-ngram-max-trie-depth
        ssl-ca-certs ssl-certfile ssl-keyfile ssl-keyfile-password stream-response-default-include-usage
        strip-thinking-cache tokenizer-backend use-ray weight-loader-drop-cache-after-load
        weight-loader-prefetch-checkpoints weight-loader-prefetch-num-threads
    """,
    ("0.5.14", "0.5.14"): "optimistic-prefill-retries",
    ("0.5.14", "0.5.16"): "dsa-prefill-cp-mode enable-dsa-prefill-context-parallel",
    ("0.5.14", "0.5.20"): "cuda-graph-tc-compiler",
    ("0.5.14", "0.5.23"): """
        asr-max-buffer-seconds asr-max-concurrent-sessions cp-strategy cuda-graph-backend-decode
        cuda-graph-backend-prefill cuda-graph-bs-decode cuda-graph-bs-prefill cuda-graph-config
        cuda-graph-max-bs-decode cuda-graph-max-bs-prefill deepep-dispatcher-output-dtype disable-attn-tp-gather
        disable-decode-cuda-graph disable-prefill-cuda-graph disaggregation-decode-extra-slots dsa-decode-backend
        dsa-prefill-backend dsa-topk-backend enable-deepseek-v4-fp4-indexer enable-int8-mamba-checkpoint
        enable-prefill-cp encoder-bootstrap-port encoder-register-urls flashinfer-allreduce-fusion-backend
        int8-mamba-ckpt-size kv-canary kv-canary-real-data kv-canary-sweep-interval lmcache-config-file
        load-snapshot-publish-interval mamba-radix-cache-strategy radix-cache-backend
        speculative-use-rejection-sampling trace-modules
    """,
    ("0.5.16", "0.5.16"): "enable-gdn-replayssm-spec",
    ("0.5.16", "0.5.23"): """
        bf16-gemm-backend dcp-size decode-context-parallel-size decoupled-spec-bind-endpoint
        decoupled-spec-connect-endpoints decoupled-spec-rank decoupled-spec-role default-chat-template-kwargs
        dllm-fdfo dsa-paged-mqa-logits-backend elastic-ep-initial-size elastic-ep-join-mode
        elastic-ep-join-rank-offset elastic-ep-scale-timeout enable-dsa-cache-layer-split enable-flexkv
        enable-linear-replayssm enable-mamba-cache-stochastic-rounding enable-page-major-kv-layout
        enable-scattered-sconv enable-session-radix-cache enable-tf32-matmul enable-unified-memory enable-waterfill
        flexkv-config-file fuseep-mode grpc-port linear-replayssm-cache-len mamba-cache-philox-rounds max-ep-size
        min-free-slots-delay mm-feature-transport optimistic-prefill-attempts retraction-policy sidecar sidecar-args
        smg-grpc-mode smg-http-sidecar-port spec-trace-dir speculative-dspark-align-verify-tokens-to-graph-tier
        speculative-dspark-block-size speculative-dspark-confidence-sts-path speculative-dspark-sps-table-path
    """,
    ("0.5.20", "0.5.23"): """
        allowed-media-domains c128-page-size dcp-comm-backend dcp-replicate-q-proj deepep-v2-mode
        disaggregation-decode-retraction-backup dsv4-attn-backend dsv4-prefill-backend dwdp-size
        enable-cp-decode-attn-tp enable-dense-mlp-attn-tp enable-layernorm-sp enable-lean-attention
        enable-linear-replayssm-spec enable-response-store enable-shared-experts-attn-tp enable-tp-lm-head-all-to-all
        enable-unified-cache-external-linker enable-w4a4-mxfp4-megamoe expert-balancedness-report-mode
        flashinfer-a2a-dispatch-type flashinfer-autotune-skip-ops gated-launch-port hicache-host-memory-mode
        hicache-storage-prefetch-retry-max-attempts hicache-storage-prefetch-retry-poll-interval
        http2-initial-connection-window-size http2-max-concurrent-streams image-processor-backend language-model-only
        linear-attn-verify-backend load-publish-endpoint mamba-max-states-per-path media-url-max-file-size-mb
        mlx-enable-sampling mm-global-cache-backend mm-io-worker-num mm-preprocess-cache-size-mb
        mm-processor-worker-num ple-offload-backend ple-offload-dir ple-offload-embedding prefill-decode-interval
        radix-eviction-policy-config return-hidden-states-mode return-input-ids return-output-ids
        sampling-mask-max-tokens speculative-domino-candidate-pool-size speculative-draft-kv-cache-dtype
        speculative-dsa-topk-backend startup-weight-load-mode trust-mm-content-hashes
        unified-cache-external-linker-backend uno-lora-path weight-cache-mode weight-cache-socket weight-cache-timeout
    """,
    ("0.5.23", "0.5.23"): """
        attention-data-parallel-size attn-dp-size boundary-reduction constrained-json-max-whitespace-cnt
        context-bucket cuda-graph-max-seq-len-prefill cuda-graph-prefill-max-context
        disable-aiter-allreduce-fusion-in-decode disable-aiter-allreduce-fusion-in-prefill
        disaggregation-decode-allocation-policy disaggregation-decode-host-receive-threshold
        disaggregation-enable-kv-checksum dsa-triton-union enable-amd-monokernel enable-decoder-swa-bounded-replay
        enable-dsa-fused-indexer enable-encoder-swa-bounded-replay enable-hicache enable-http-worker-reuseport
        enable-kv-cache-sharding enable-linker-mla-dedup enable-megamoe-for-layernorm-sp enable-nvidia-megakernel
        enable-paged-experts enable-pd-role-switch enable-return-aux-hidden-states enable-watermark
        grpc-response-timeout-secs hicache-host-memory-fraction monokernel-backend otlp-service-name
        paged-experts-num-resident prefill-decode-interval-min-bs prefill-kv-cache-dequant-dtype qsa-indexer-dtype
        return-aux-hidden-state-layer-ids shared-experts-tp-size speculative-draft-sink-size
        speculative-enable-w4a4-mxfp4-megamoe speculative-use-block-verification swa-prefix-tails
        trust-request-chat-template unified-cache-external-linker-config watermark-config
    """,
}


def flag_span(name: str) -> Span | None:
    """The first and the last read release with a flag (``--tp-size``); ``None`` for one that none of them has."""
    return _spans().get(name)


def is_flag(name: str, version: str | None = None) -> bool:
    """Whether a release has a flag. An unknown version counts as the newest."""
    span, version = flag_span(name), readable(version)
    before = [read for read in READ if at_least(version, read)] or [READ[0]]
    after = [read for read in READ if version is not None and at_least(read, version)] or [READ[-1]]
    return span is not None and any(
        version_key(span[0]) <= version_key(read) <= version_key(span[1]) for read in (before[-1], after[0])
    )


def flags_of(version: str | None = None) -> tuple[str, ...]:
    return tuple(name for name in _spans() if is_flag(name, version))


def nearest_flag(name: str, version: str | None = None) -> str | None:
    """The flag of a release that a misspelt one probably means."""
    near = difflib.get_close_matches(name, flags_of(version), n=1, cutoff=0.7)
    return near[0] if near else None


@cache
def _spans() -> Mapping[str, Span]:
    return {f"--{name}": span for span, names in _NAMES.items() for name in names.split()}
