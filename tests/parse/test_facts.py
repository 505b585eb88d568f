from __future__ import annotations

import pytest
from log_samples import N4_GRAPH, N5_NO_GRAPH, N16_GRAPH, PLAIN_DECODE, PLAIN_PREFILL, decode_line, recorded

from workbench.parse.facts import MAX_KEPT, MAX_PAIRS, FactsBuilder
from workbench.parse.records import RateDefinition, StartupFacts
from workbench.parse.server_log import iter_records, parse_log

STAMP = "[2026-01-05 10:00:00] "


def facts_of(*lines: str) -> StartupFacts:
    return parse_log("".join(f"{STAMP}{line}\n" if not line.startswith("[") else line for line in lines)).facts


def args(**values: object) -> str:
    pairs = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return f"server_args=ServerArgs({pairs})"


def eagle(steps: int | None, topk: int | None, draft_tokens: int | None) -> str:
    return args(
        speculative_algorithm="EAGLE3",
        speculative_num_steps=steps,
        speculative_eagle_topk=topk,
        speculative_num_draft_tokens=draft_tokens,
    )


def test_nothing_said() -> None:
    assert parse_log("hello\n").facts == StartupFacts()


def test_the_embedded_engine_says_so() -> None:
    line = "[2026-01-05 10:00:00] Embedded engine of workbench 0.1.0, torch 2.13.0, 2 threads\n"
    assert parse_log(line).facts.is_embedded
    assert not parse_log(line.replace("] Embedded", "] An embedded")).facts.is_embedded


# ---- recorded logs: expected values read from the files with grep -n --------------------------------------------


def test_recorded_eagle_flag() -> None:
    facts = parse_log(recorded("eagle-flag")).facts
    # grep -n "Load weight end": lines 17 and 24, type=LlamaForCausalLM and type=LlamaForCausalLMEagle3
    assert [(block.line, block.type, block.mem_usage_gb) for block in facts.weights] == [
        (17, "LlamaForCausalLM", 0.27),
        (24, "LlamaForCausalLMEagle3", 0.07),
    ]
    assert facts.server_args_line == 3
    assert facts.server_args["speculative_algorithm"] == "EAGLE"
    assert facts.server_args["decode_log_interval"] == 10
    assert facts.server_args["context_length"] == 4096
    assert facts.server_args["mem_fraction_static"] == 0.5
    assert facts.server_args["disable_cuda_graph"] is False
    assert facts.server_args["speculative_draft_model_path"] == "/models/draft-untrained"
    assert (facts.max_running_requests, facts.max_total_num_tokens, facts.context_len) == (32, 3120410, 4096)
    assert facts.ready_line == 52
    assert facts.graph_captures == 3  # target verify, draft decode, draft extend
    assert (facts.num_steps, facts.eagle_topk, facts.draft_tokens_effective) == (3, 1, 4)
    assert facts.rate_definition is RateDefinition.DRAFTS_OVER_N_MINUS_1
    assert facts.draft_tokens_source == "server_args"
    # 0.5.14 wrote it; its lines are those of 0.5.14 to 0.5.18.
    assert facts.version_bracket == ("0.5.14", "0.5.18")
    assert facts.server_starts == 1


def test_recorded_baseline() -> None:
    facts = parse_log(recorded("base")).facts
    assert [block.type for block in facts.weights] == ["LlamaForCausalLM"]
    assert facts.server_args["speculative_algorithm"] is None
    assert (facts.num_steps, facts.eagle_topk, facts.draft_tokens_effective) == (None, None, None)
    assert facts.rate_definition is RateDefinition.UNKNOWN
    assert (facts.max_total_num_tokens, facts.ready_line, facts.graph_captures) == (3227882, 42, 1)
    assert facts.version_bracket == ("0.5.14", "0.5.18")


@pytest.mark.parametrize("steps", [1, 2, 4, 5, 6])
def test_recorded_steps(steps: int) -> None:
    facts = parse_log(recorded(f"n24000L_s{steps}", "h200_first_trial")).facts
    assert (facts.num_steps, facts.draft_tokens_effective) == (steps, steps + 1)
    assert facts.rate_definition is RateDefinition.DRAFTS_OVER_N_MINUS_1


@pytest.mark.parametrize("steps", [1, 2, 4, 5, 6])
def test_recorded_draft_tokens_are_found_without_arguments(steps: int) -> None:
    lines = recorded(f"n24000L_s{steps}", "h200_first_trial").splitlines(keepends=True)
    facts = parse_log(b"".join(line for line in lines if b" batch, " in line)).facts
    assert facts.draft_tokens_effective == steps + 1
    assert facts.draft_tokens_source == "accept rate"
    assert facts.rate_definition is RateDefinition.DRAFTS_OVER_N_MINUS_1
    assert facts.version_bracket == ("0.5.11", "0.5.23")


# ---- cases of the copied lines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("log", "draft_tokens"), [(N4_GRAPH, 4), (N5_NO_GRAPH, 5), (N16_GRAPH, 16)])
def test_copied_lines_give_definition_draft_tokens_and_bracket(log: bytes, draft_tokens: int) -> None:
    facts = parse_log(log).facts
    assert facts.rate_definition is RateDefinition.L_OVER_N
    assert facts.draft_tokens_effective == draft_tokens
    assert facts.draft_tokens_source == "accept rate"
    assert facts.version_bracket == ("0.5.9", "0.5.10")
    assert facts.num_steps is None and facts.eagle_topk is None


def test_nothing_accepted_at_3_steps() -> None:
    facts = facts_of(eagle(3, 1, 4), decode_line(accept_len="1.00", accept_rate="0.25"))
    assert facts.rate_definition is RateDefinition.L_OVER_N
    assert facts.draft_tokens_effective == 4


def test_16_draft_tokens_stated() -> None:
    # 2.15 / 16 = 0.134; (2.15 - 1) / 15 = 0.077
    facts = facts_of(eagle(5, 8, 16), decode_line(accept_len="2.15", accept_rate="0.13"))
    assert facts.rate_definition is RateDefinition.L_OVER_N
    assert facts.draft_tokens_effective == 16


def test_16_draft_tokens_not_stated_and_one_line_only() -> None:
    # (2.15 - 1) / 9 rounds to 0.13 as well: one line does not decide, so nothing is claimed.
    facts = facts_of(decode_line(accept_len="2.15", accept_rate="0.13"))
    assert facts.rate_definition is RateDefinition.UNKNOWN
    assert facts.draft_tokens_effective is None


def test_rate_of_0_5_14() -> None:
    # (2.40 - 1) / 3 = 0.467
    facts = facts_of(eagle(3, 1, 4), decode_line(accept_len="2.40", accept_rate="0.47"))
    assert facts.rate_definition is RateDefinition.DRAFTS_OVER_N_MINUS_1


@pytest.mark.parametrize("asked", [16, 5, None])
def test_chain_is_rewritten_to_steps_plus_1(asked: int | None) -> None:
    facts = facts_of(eagle(3, 1, asked))
    assert (facts.num_steps, facts.eagle_topk, facts.draft_tokens_effective) == (3, 1, 4)


def test_no_rewriting_before_0_4_6() -> None:
    old = "[2025-03-01 10:00:00 TP0] Decode batch. #running-req: 1, #token: 5, token usage: 0.00, accept len: 2.31, "
    facts = facts_of(eagle(3, 1, 16), old + "gen throughput (token/s): 1.00, #queue-req: 0, \n")
    assert facts.version_bracket == ("0.4.3", "0.4.5")
    assert facts.draft_tokens_effective == 16


def test_refused_shape_keeps_what_is_stated() -> None:
    facts = facts_of(eagle(3, None, 8))
    assert (facts.num_steps, facts.eagle_topk, facts.draft_tokens_effective) == (3, None, 8)


def test_draft_tokens_from_the_graph_capture() -> None:
    facts = facts_of(
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=6, bs=[1, 2], avail mem=69.45 GB"
    )
    assert (facts.draft_tokens_effective, facts.draft_tokens_source) == (6, "graph capture")


def test_early_accept_rate_is_over_steps_plus_1() -> None:
    # 0.5.3.post2: a full stop after "batch", and an accept rate. 2.16 / (3 + 1) = 0.54, whatever N is.
    line = (
        "[2025-10-22 10:27:57 TP0] Decode batch. #running-req: 1, #token: 5, token usage: 0.00, accept len: 2.17, "
        "accept rate: 0.54, cuda graph: True, gen throughput (token/s): 1.00, #queue-req: 0, \n"
    )
    facts = facts_of(eagle(3, 4, 8), line)
    assert facts.rate_definition is RateDefinition.L_OVER_S_PLUS_1
    assert facts.version_bracket == ("0.5.3.post2", "0.5.3.post3")


def test_rates_that_fit_nothing_are_unknown() -> None:
    facts = facts_of(eagle(3, 1, 4), *(decode_line(accept_len="2.00", accept_rate=f"0.{i}1") for i in range(10)))
    assert facts.rate_definition is RateDefinition.UNKNOWN


# ---- start-up lines ----------------------------------------------------------------------------------------------


def test_first_statement_wins_and_other_ranks_do_not_count() -> None:
    weights = "Load weight end. type={}, dtype=torch.bfloat16, avail mem=1.00 GB, mem usage={} GB.\n"
    log = "".join(
        f"[2026-01-05 10:00:00 TP{rank}] " + weights.format(name, size)
        for name, size in (("A", "2.00"), ("AEagle3", "0.50"))
        for rank in (1, 0)
    )
    facts = parse_log(log).facts
    assert [(block.type, block.dtype, block.mem_usage_gb) for block in facts.weights] == [
        ("A", "torch.bfloat16", 2.0),
        ("AEagle3", "torch.bfloat16", 0.5),
    ]


def test_capacity_line_beats_the_announced_cap() -> None:
    announced = "Max running requests is reset to 48 for speculative decoding."
    assert facts_of(announced).max_running_requests == 48
    facts = facts_of(
        announced, "max_total_num_tokens=100, chunked_prefill_size=8, max_running_requests=12, context_len=4096"
    )
    assert facts.max_running_requests == 12 and facts.max_total_num_tokens == 100
    assert [event.line for event in facts.adjustments] == [1]


def test_adjustments_are_kept_once() -> None:
    facts = facts_of(
        "Spec v2 is enabled for eagle3", "Spec v2 is enabled for eagle3", "speculative_adaptive disabled: x"
    )
    assert [event.line for event in facts.adjustments] == [1, 3]


def test_second_server_in_one_file() -> None:
    log = recorded("eagle-flag") + recorded("base")
    facts = parse_log(log).facts
    assert facts.server_starts == 2
    assert [block.type for block in facts.weights] == ["LlamaForCausalLM", "LlamaForCausalLMEagle3"]
    assert facts.server_args["speculative_algorithm"] == "EAGLE"
    assert facts.graph_captures == 3 and facts.ready_line == 52


def test_two_nodes_print_their_arguments_before_any_weights() -> None:
    weights = "Load weight end. type=A, dtype=x, avail mem=1.00 GB, mem usage=1.00 GB."
    facts = facts_of(eagle(3, 1, 4), eagle(3, 1, 4), weights)
    assert facts.server_starts == 2 and len(facts.weights) == 1


# ---- version brackets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "bracket"),
    [
        ("Decode batch. #running-req: 3, #token: 1, token usage: 0.02, gen throughput (token/s): 1.00, #queue-req: 1",
         ("0.3.6", "0.4.6")),
        ("Decode batch. #running-req: 3, #token: 1, token usage: 0.02, gen throughput (token/s): 1.00, "
         "largest-len: 0, #queue-req: 1, ", ("0.4.3", "0.4.4")),
        ("Decode batch. #running-req: 3, #token: 1, token usage: 0.02, cuda graph: True, "
         "gen throughput (token/s): 1.00, #queue-req: 1", ("0.4.6.post5", "0.4.9.post1")),
        ("Decode batch. #running-req: 3, #token: 1, token usage: 0.02, cuda graph: True, "
         "gen throughput (token/s): 1.00, #queue-req: 1, timestamp: 2025-07-09T03:11:22.123456",
         ("0.4.9.post1", "0.4.9.post1")),
        ("Decode batch. #running-req: 3, #token: 1, token usage: 0.02, cuda graph: True, "
         "gen throughput (token/s): 1.00, #queue-req: 1, ", ("0.4.9.post3", "0.5.3.post3")),
        ("Decode batch [7], #running-req: 3, #token: 1, token usage: 0.02, cuda graph: True, "
         "gen throughput (token/s): 1.00, #queue-req: 1, ", ("0.5.4", "0.5.8")),
        ("Decode batch, #running-req: 3, #token: 1, token usage: 0.02, cuda graph: True, "
         "gen throughput (token/s): 1.00, #queue-req: 1, ", ("0.5.4.post1", "0.5.8")),
        ("Decode batch, #running-req: 3, #token: 1, token usage: 0.02, cuda graph: True, "
         "gen throughput (token/s): 1.00, #queue-req: 1", ("0.5.9", "0.5.23")),
        ("Decode batch, #running-req: 3, #token: 1, token usage: 0.02, cuda graph: True, "
         "gen throughput (token/s): 1.00, #queue-req: 1, fwd occupancy: 1.00%, fwd+idle occupancy: 2.00%",
         ("0.5.21", "0.5.23")),
        ("Prefill batch. #new-seq: 1, #new-token: 2, #cached-token: 3, cache hit rate: 1.00%, token usage: 0.10, "
         "#running-req: 4, #queue-req: 5", ("0.3.6", "0.4.2")),
        ("Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 3, token usage: 0.10, #running-req: 4, "
         "#queue-req: 5, input throughput (token/s): 8.25, cuda graph: True", ("0.5.9", "0.5.9")),
        ("Prefill batch, #new-seq: 1, #new-token: 2, #cached-token: 3, token usage: 0.10, #running-req: 4, "
         "#queue-req: 5, cuda graph: True, input throughput (token/s): 8.25", ("0.5.10", "0.5.10")),
        ("server_args={'model_path': '/m'}", ("0.5.19", "0.5.23")),
        ("Load weight end. type=A, quant=fp8, avail mem=1.00 GB, mem usage=1.00 GB.", ("0.5.10", "0.5.23")),
        ("Spec v1 is used for eagle/eagle3 speculative decoding because topk > 1", ("0.5.11", "0.5.12")),
        ("Watchdog timeout (self.watchdog_timeout=300)", ("0.3.6", "0.5.6")),
    ],
)  # fmt: skip
def test_version_bracket(line: str, bracket: tuple[str, str]) -> None:
    facts = facts_of(line)
    assert facts.version_bracket == bracket
    assert facts.version_evidence


def test_lines_that_contradict_each_other_give_no_bracket() -> None:
    old = (
        "Decode batch. #running-req: 3, #token: 1, token usage: 0.02, gen throughput (token/s): 1.00, "
        "largest-len: 0, #queue-req: 1, "
    )
    assert facts_of(old, PLAIN_PREFILL).version_bracket is None


def test_cut_line_shows_what_it_has_only() -> None:
    line = PLAIN_DECODE[: PLAIN_DECODE.index("cuda graph")] + "cu..."
    # No graph flag and no comma at the end, but the line was cut: only the comma after "batch" counts.
    assert facts_of(line + "\n").version_bracket == ("0.5.4.post1", "0.5.23")


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    builder = FactsBuilder()
    pairs = (f"{i}.{j:02d}" for i in range(1, 61) for j in range(100))
    for number, length in enumerate(pairs):
        line = decode_line(accept_len=length).replace("cuda graph", f"key {number}: 1, cuda graph")
        for record in iter_records([line.encode()]):
            builder.feed(record)
    assert len(builder._pairs) == MAX_PAIRS
    assert len(builder._layouts) == MAX_KEPT
    assert builder.facts().rate_definition is RateDefinition.UNKNOWN
