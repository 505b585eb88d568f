from __future__ import annotations

import pytest
from diagnosis_logs import decode, diagnosed, only, plain, rules, server_args, speculative_args, started

from workbench.analysis.diagnosis import Certainty


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
    assert diagnosis.verdict == (
        "No fault found. Speculation does not pay at 1 running request (0.63x): accept length is 2.10 and break-even "
        "3.33."
    )


def test_a_speedup_near_one_is_not_decidable_from_one_pass() -> None:
    diagnosis = diagnosed(*started(), *spec(82.0), baseline=(*plain(), *base(80.0)))

    assert only(diagnosis, "does_it_pay").title == (
        "Whether speculation pays is not decidable from these two logs at 1 running request (1.02x)"
    )
    assert "5 passes" in only(diagnosis, "does_it_pay").next_action


def test_loads_are_judged_one_by_one() -> None:
    diagnosis = diagnosed(
        *started(), *spec(120.0), *spec(1000.0, running=32), baseline=(*plain(), *base(80.0), *base(2000.0, running=32))
    )

    assert only(diagnosis, "does_it_pay").title == (
        "Speculation pays at 1 running request (1.50x) and does not pay at 32 running requests (0.50x)"
    )


def test_a_load_that_is_left_open_is_not_called_a_win() -> None:
    diagnosis = diagnosed(
        *started(), *spec(120.0), *spec(2060.0, running=32), baseline=(*plain(), *base(80.0), *base(2000.0, running=32))
    )

    assert only(diagnosis, "does_it_pay").title == (
        "Speculation pays at 1 running request (1.50x) and cannot be judged from these logs at 32 running requests "
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


@pytest.mark.parametrize("lines", [(*plain(), *base(80.0)), (*started(), *[decode(accept=1.0, rate=0.0)] * 3)])
def test_no_baseline_is_asked_for_where_it_would_not_help(lines: tuple[str, ...]) -> None:
    assert "no_baseline" not in rules(diagnosed(*lines))
