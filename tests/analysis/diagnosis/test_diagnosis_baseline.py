from __future__ import annotations

import pytest
from diagnosis_logs import decode, diagnosed, only, plain, recorded, rules, said, server_args, speculative_args, started

from workbench.analysis.diagnosis import Certainty, diagnose, render_text


def spec(speed: float, running: int = 1, accept: float = 2.4) -> list[str]:
    return [decode(running, speed=speed, accept=accept, rate=round((accept - 1) / 3, 2))] * 8


def base(speed: float, running: int = 1) -> list[str]:
    return [decode(running, speed=speed)] * 8


def test_a_clear_win_is_likely_from_logs_alone() -> None:
    diagnosis = diagnosed(*started(), *spec(120.0), baseline=(*plain(), *base(80.0)))

    finding = only(diagnosis, "does_it_pay")
    assert finding.title == "Speculation pays at 1 running request (1.50x)"
    assert finding.certainty is Certainty.LIKELY
    assert not finding.is_fault
    assert diagnosis.verdict == "No fault found. Speculation pays at 1 running request (1.50x)."
    assert "no_baseline" not in rules(diagnosis)


def test_a_clear_loss_names_the_accept_length_that_would_pay() -> None:
    diagnosis = diagnosed(*started(), *spec(56.7, accept=2.1), baseline=(*plain(), *base(90.0)))

    finding = only(diagnosis, "does_it_pay")
    # 2.1 x 90 / 56.7 = 3.33
    assert "break-even accept length 3.33, reached 2.10" in finding.evidence[0]
    assert finding.is_fault
    # One log does not tell what part of a cycle is drafting, so no direction is promised.
    assert finding.next_action == (
        "serve without speculation where it loses; before training more, profile one verify cycle; whether fewer steps "
        "help this log cannot tell (they accept less, and make a cycle cheaper only if the draft steps are a large "
        "part of it): measure --speculative-num-steps 1 and 3"
    )
    assert diagnosis.verdict == (
        "No fault found. Speculation loses at 1 running request (0.63x): accept length there is 2.10 and break-even "
        "3.33."
    )


def test_a_speedup_near_one_is_not_decidable_from_one_pass() -> None:
    diagnosis = diagnosed(*started(), *spec(82.0), baseline=(*plain(), *base(80.0)))

    assert only(diagnosis, "does_it_pay").title == (
        "Whether speculation pays is not decidable from these two logs at 1 running request (1.02x)"
    )
    assert "5 passes" in only(diagnosis, "does_it_pay").next_action
    # 2.4 / 1.025
    assert "break-even accept length 2.34, reached 2.40" in only(diagnosis, "does_it_pay").evidence[0]


def test_loads_are_judged_one_by_one() -> None:
    diagnosis = diagnosed(
        *started(), *spec(120.0), *spec(1000.0, running=32), baseline=(*plain(), *base(80.0), *base(2000.0, running=32))
    )

    assert only(diagnosis, "does_it_pay").title == (
        "Speculation pays at 1 running request (1.50x) and loses at 32 running requests (0.50x)"
    )


def test_a_load_that_is_left_open_is_not_called_a_win() -> None:
    diagnosis = diagnosed(
        *started(), *spec(120.0), *spec(2060.0, running=32), baseline=(*plain(), *base(80.0), *base(2000.0, running=32))
    )

    assert only(diagnosis, "does_it_pay").title == (
        "Speculation pays at 1 running request (1.50x) and is not decidable from these two logs at 32 running requests "
        "(1.03x)"
    )


def test_logs_without_a_common_load_cannot_be_compared() -> None:
    diagnosis = diagnosed(*started(), *spec(120.0), baseline=(*plain(), *base(2000.0, running=32)))

    assert "share no load" in only(diagnosis, "does_it_pay").title


def test_a_deployment_fault_comes_before_the_speedup() -> None:
    lines = [decode(speed=50.0, accept=2.4, rate=0.47, graph=False)] * 8
    diagnosis = diagnosed(*started(), *lines, baseline=(*plain(), *base(90.0)))

    found = rules(diagnosis)
    assert found.index("graph_off") < found.index("does_it_pay")
    assert diagnosis.verdict.startswith("CUDA graphs are off")


def test_swapped_logs_are_told() -> None:
    diagnosis = diagnosed(*plain(), *base(80.0), baseline=(*started(), *spec(120.0)))

    assert "swapped" in only(diagnosis, "unusable_baseline").title
    assert diagnosis.verdict == (
        "The two logs are swapped: the baseline is the speculative one; exchange LOG and --baseline."
    )


def test_a_speculative_baseline_is_refused() -> None:
    diagnosis = diagnosed(*started(), *spec(120.0), baseline=(*started(), *spec(120.0)))

    assert "itself speculative" in only(diagnosis, "unusable_baseline").title
    assert "does_it_pay" not in rules(diagnosis)


def test_unequal_settings_are_listed() -> None:
    diagnosis = diagnosed(
        *started(speculative_args(mem_fraction_static=0.8, page_size=1), limit=48),
        *spec(120.0),
        baseline=(*plain(server_args(mem_fraction_static=0.5, page_size=1), limit=2048), *base(80.0)),
    )

    assert only(diagnosis, "unfair_comparison").evidence == (
        "max_running_requests: 48 here, 2048 in the baseline",
        "mem_fraction_static: 0.8 here, 0.5 in the baseline",
    )
    assert not only(diagnosis, "unfair_comparison").is_fault


def test_equal_settings_are_not_mentioned() -> None:
    diagnosis = diagnosed(*started(), *spec(120.0), baseline=(*plain(), *base(80.0)))

    assert not {"unfair_comparison", "other_backend"} & set(rules(diagnosis))


def test_another_attention_backend_is_named() -> None:
    diagnosis = diagnosed(
        *started(speculative_args(attention_backend="triton")),
        *spec(120.0),
        baseline=(*plain(server_args(attention_backend="fa3")), *base(80.0)),
    )

    assert only(diagnosis, "other_backend").title == "The attention backend differs: triton here, fa3 in the baseline"


def test_without_a_baseline_the_speed_to_beat_and_the_command_are_given() -> None:
    args = speculative_args(model_path="/models/my model", tp_size=8, mem_fraction_static=0.85, trust_remote_code=True)
    diagnosis = diagnosed(*started(args, limit=64), *spec(66.9))

    finding = only(diagnosis, "no_baseline")
    assert finding.evidence == ("it pays only where the plain server is slower than 66.9 tok/s at 1 running request",)
    assert (
        "python -m sglang.launch_server --model-path '/models/my model' --tp-size 8 --mem-fraction-static 0.85 "
        "--max-running-requests 64 --trust-remote-code" in finding.next_action
    )
    assert "speculative" not in finding.next_action
    assert "--baseline" in finding.next_action
    assert any("whether speculation pays" in point for point in diagnosis.not_known)


def test_a_loss_at_one_step_asks_for_no_fewer() -> None:
    args = speculative_args(speculative_num_steps=1, speculative_num_draft_tokens=2)
    diagnosis = diagnosed(*started(args), *spec(56.7, accept=1.6), baseline=(*plain(), *base(90.0)))

    assert only(diagnosis, "does_it_pay").next_action == (
        "serve without speculation where it loses; before training more, profile one verify cycle"
    )


EMBEDDED = said("Embedded engine of workbench 0.1.0, torch 2.13.0+cpu, 2 threads; it speaks as SGLang 0.5.14.")


def test_the_embedded_engine_gets_no_advice_for_sglang() -> None:
    args = speculative_args(device="cpu", context_length=2048)
    lines = [decode(speed=8.3, accept=2.4, rate=0.47, graph=False)] * 8
    diagnosis = diagnosed(*started(args, EMBEDDED), *lines)

    assert (
        "`python -m workbench.reference --model-path /models/target --device cpu --context-length 2048 "
        "--max-running-requests 128`" in only(diagnosis, "no_baseline").next_action
    )
    everything = render_text(diagnosis, all_figures=True).replace("SGLANG_SIMULATE_ACC_LEN", "")
    assert not [word for word in ("sglang", "SGLang", "CUDA") if word in everything.replace("/sglang", "")]
    assert "embedded engine of the workbench" in everything


def test_on_a_cpu_the_engine_is_not_guessed() -> None:
    diagnosis = diagnosed(*started(speculative_args(device="cpu")), *spec(8.3))

    assert only(diagnosis, "no_baseline").next_action.startswith(
        "start the same command without the --speculative-* flags"
    )
    assert not any("pip show" in point for point in diagnosis.not_known)
    on_a_gpu = diagnosed(*started(speculative_args(device="cuda")), *spec(8.3))
    assert any("pip show sglang" in point for point in on_a_gpu.not_known)


def command(**given: object) -> str:
    action = only(diagnosed(*started(speculative_args(**given)), *spec(66.9)), "no_baseline").next_action
    return action[action.index("`") : action.index(", send")]


def test_the_command_copies_what_is_not_at_its_default() -> None:
    assert command(
        disable_prefill_cuda_graph=True,
        disable_radix_cache=False,
        chunked_prefill_size=4096,
        page_size=1,
        kv_cache_dtype="auto",
        quantization=None,
        served_model_name="/models/target",
        lora_paths=[],
        cuda_graph_bs=[1, 2, 4],
        decode_log_interval=10,
        speculative_num_steps=5,
    ) == (
        "`python -m sglang.launch_server --model-path /models/target --chunked-prefill-size 4096 --cuda-graph-bs 1 2 4 "
        "--decode-log-interval 10 --max-running-requests 128 --disable-prefill-cuda-graph`"
    )


def test_the_command_leaves_out_places_and_names_what_it_may_not_copy() -> None:
    copied = command(host="0.0.0.0", port=31000, random_seed=7, api_key="sk-1", disable_overlap_schedule=True)

    assert copied == (
        "`python -m sglang.launch_server --model-path /models/target --max-running-requests 128` "
        "(not copied: api_key and disable_overlap_schedule)"
    )


def test_the_command_of_a_recorded_server_is_that_of_its_recorded_baseline() -> None:
    text = only(diagnose(recorded("h200_smollm2/_servers/sim25-s3")), "no_baseline").next_action
    for flag in ("--context-length 4096", "--mem-fraction-static 0.5", "--max-running-requests 32"):
        assert flag in text
    for flag in ("--attention-backend triton", "--cuda-graph-max-bs-decode 32", "--disable-prefill-cuda-graph"):
        assert flag in text
    # Defaults of 0.5.14 and objects that no flag takes.
    for word in ("--schedule-policy", "--hicache", "--moe", "PhaseConfig", "--served-model-name", "--port"):
        assert word not in text


@pytest.mark.parametrize("lines", [(*plain(), *base(80.0)), (*started(), *[decode(accept=1.0, rate=0.0)] * 3)])
def test_no_baseline_is_asked_for_where_it_would_not_help(lines: tuple[str, ...]) -> None:
    assert "no_baseline" not in rules(diagnosed(*lines))


def vllm(speed: float, accept: float | None = None) -> list[str]:
    """Lines of eight intervals, with stamps without a year."""
    lines = [
        "INFO 05-18 11:19:54 [loggers.py:1] Engine 000: Avg prompt throughput: 5.0 tokens/s, Avg generation "
        f"throughput: {speed:.1f} tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache "
        "hit rate: 0.0%"
    ]
    if accept is not None:
        lines.append(
            f"INFO 05-18 11:19:54 [metrics.py:1] SpecDecoding metrics: Mean acceptance length: {accept:.2f}, Accepted: "
            "70 tokens, Drafted: 150 tokens, Per-position acceptance rate: 0.700, 0.400, Avg Draft acceptance rate: "
            "46.7%"
        )
    return lines * 8


def test_two_vllm_logs_are_compared_by_their_engine_lines() -> None:
    diagnosis = diagnosed(*vllm(120.0, 2.4), baseline=vllm(80.0))

    assert only(diagnosis, "does_it_pay").title == "Speculation pays at 2 running requests (1.50x)"
    assert not {"unusable_baseline", "not_comparable"} & set(rules(diagnosis))


def test_a_vllm_baseline_that_idles_has_no_usable_speed() -> None:
    found = only(diagnosed(*vllm(120.0, 2.4), baseline=vllm(0.0)), "unusable_baseline")

    assert found.title == "The baseline log has no engine line with a usable speed"
    assert "'Avg generation throughput'" in found.next_action


@pytest.mark.parametrize(
    ("log", "baseline", "words"),
    [
        (vllm(120.0, 2.4), [*plain(), *base(80.0, 2)], "this log is vLLM's and the baseline SGLang's"),
        ([*started(), *spec(120.0, 2)], vllm(80.0), "this log is SGLang's and the baseline vLLM's"),
    ],
)
def test_logs_of_two_engines_are_not_compared(log: list[str], baseline: list[str], words: str) -> None:
    diagnosis = diagnosed(*log, baseline=baseline)

    assert words in only(diagnosis, "not_comparable").title
    assert words in diagnosis.verdict
    assert "does_it_pay" not in rules(diagnosis)


def test_a_log_without_a_speed_says_so_and_does_not_ask_for_the_baseline_again() -> None:
    diagnosis = diagnosed(*started(), *spec(0.0), baseline=(*plain(), *base(80.0)))

    assert diagnosis.verdict.startswith("Whether speculation pays cannot be said: this log has no usable speed in 8")
    assert "nothing wrong" not in diagnosis.verdict
    assert not any("give its log with --baseline" in point for point in diagnosis.not_known)


def test_a_baseline_of_cut_lines_is_not_called_plain() -> None:
    cut = "[2026-02-23 17:30:43 TP0] Decode batch, #running-req: 1, #token: 403, token usage: 0.00, ac..."
    found = only(diagnosed(*started(), *spec(120.0), baseline=[cut] * 4), "unusable_baseline")

    assert found.title == "Whether the baseline log speculates is not known: 4 of 4 decode lines are cut or unreadable"


def ranked(lines: list[str], ranks: int) -> list[str]:
    return [line.replace(" TP0]", f" DP{rank} TP0]") for line in lines for rank in range(ranks)]


def test_data_parallel_ranks_are_named_with_their_load() -> None:
    diagnosis = diagnosed(*started(), *ranked(spec(120.0), 4), baseline=(*plain(), *ranked(base(80.0), 4)))

    assert only(diagnosis, "does_it_pay").title == "Speculation pays at 4 ranks x 1 running request (1.50x)"
    figures = diagnosis.figures.set_index("name")["value"]
    # 4 x 120 tok/s; a step takes 1000 x 2.4 / 120 ms on every rank.
    assert figures["speed at 4 ranks x 1 running"] == 480
    assert figures["time of a step at 4 ranks x 1 running"] == pytest.approx(20.0)


def test_other_numbers_of_ranks_are_not_compared() -> None:
    diagnosis = diagnosed(*started(), *ranked(spec(120.0), 4), baseline=(*plain(), *base(80.0)))

    assert "4 data parallel ranks here, 1 in the baseline" in only(diagnosis, "not_comparable").title
    assert "does_it_pay" not in rules(diagnosis)
