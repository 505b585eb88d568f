from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_nvml import GIB, FakeGpu, FakeNvml
from launching import wait_for

from workbench.errors import LaunchError
from workbench.gpu import open_gpus
from workbench.launch import places
from workbench.launch.places import choose, claim, reserved_port, usable_gpus


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "POLL_S", 0.02)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A node with eight idle GPUs."""
    nvml = FakeNvml([FakeGpu(uuid=f"GPU-{letter}000") for letter in "abcdefgh"])
    nvml.install(monkeypatch)
    return nvml


# ---- which GPUs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "needed", "chosen"),
    [
        ({0, 1, 2, 3, 4, 5, 6, 7}, 4, (0, 1, 2, 3)),
        ({1, 2, 3, 4, 5, 6, 7}, 4, (4, 5, 6, 7)),
        ({1, 2, 3, 4, 6, 7}, 4, (1, 2, 3, 4)),
        ({0, 2, 3, 5, 7}, 4, (0, 2, 3, 5)),
        ({0, 1, 2}, 4, ()),
        ({1, 2, 3}, 2, (2, 3)),
        ({5}, 1, (5,)),
        (set(), 1, ()),
    ],
)
def test_neighbours_come_first(free: set[int], needed: int, chosen: tuple[int, ...]) -> None:
    assert choose(tuple(range(8)), frozenset(free), needed) == chosen


def test_numbers_that_are_not_neighbours_are_no_block() -> None:
    assert choose((0, 2, 3, 4), frozenset({0, 2, 3, 4}), 2) == (3, 4)


def test_what_may_be_used(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_gpus() as found:
        assert usable_gpus(found) == tuple(range(8))
        assert usable_gpus(found, 2) == (0, 1)
        for stated, numbers in (
            ("4,5", (4, 5)),
            ("5, 4, 5", (5, 4)),
            ("", ()),
            ("-1", ()),
            ("1,x,2", (1,)),
            ("1,²", (1,)),
            ("9" * 5000, ()),
            ("GPU-c,GPU-h000", (2, 7)),
            ("GPU-none,1", ()),
        ):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", stated)
            assert usable_gpus(found) == numbers, stated
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert usable_gpus(None) == ()
    assert usable_gpus(None, 2) == (0, 1)


# ---- claims ------------------------------------------------------------------------------------------------------


def test_disjoint_runs_share_a_node(node: FakeNvml) -> None:
    with claim(4) as first, claim(4) as second:
        assert (first, second) == ((0, 1, 2, 3), (4, 5, 6, 7))
    with claim(0) as none, claim(8) as every:
        assert (none, every) == ((), tuple(range(8)))
    assert node.opened == 0


def test_eight_servers_of_one_gpu_each(node: FakeNvml) -> None:
    inside = threading.Barrier(8, timeout=20)

    def hold(_: int) -> tuple[int, ...]:
        with claim(1) as gpus:
            inside.wait()
            return gpus

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(hold, range(8))) == [(number,) for number in range(8)]


def test_a_claim_waits_for_the_end_of_another(node: FakeNvml) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with claim(6):

            def later() -> tuple[int, ...]:
                with claim(4, on_wait=said.append) as gpus:
                    return gpus

            waiting = pool.submit(later)
            assert wait_for(lambda: bool(said))
            time.sleep(0.1)
            assert not waiting.done()
        # The locks end one after the other: either half of the node may be free first.
        assert waiting.result(timeout=10) in ((0, 1, 2, 3), (4, 5, 6, 7))
    assert len(said) == 1
    assert said[0].startswith("waiting for 4 free GPUs: GPU 0 is taken by another run; GPU 1 is taken")


def test_a_large_claim_is_not_overtaken(node: FakeNvml) -> None:
    order: list[str] = []
    with ThreadPoolExecutor(2) as pool:

        def take(name: str, needed: int) -> None:
            with claim(needed, on_wait=lambda _: order.append(f"{name} waits")):
                order.append(name)

        with claim(1):
            large = pool.submit(take, "large", 8)
            assert wait_for(lambda: order == ["large waits"])
            small = pool.submit(take, "small", 1)
            time.sleep(0.2)
            assert order == ["large waits"]
        large.result(timeout=10)
        small.result(timeout=10)
    assert order == ["large waits", "large", "small"]


def test_memory_that_somebody_else_holds_is_no_free_gpu(node: FakeNvml) -> None:
    node.gpus[1].used, node.gpus[1].holders = 70 * GIB, (4711,)
    with claim(4) as gpus:
        assert gpus == (4, 5, 6, 7)
    said = "8 GPUs were not free in time: GPU 1 holds 70 GiB of 4711"
    with pytest.raises(LaunchError, match=said) as caught, claim(8, timeout_s=0.1):
        pass
    assert caught.value.kind == "timeout"
    # What was tried is not kept.
    node.gpus[1].used = 0
    with claim(8) as gpus:
        assert gpus == tuple(range(8))


def test_who_waits_in_line_gives_up_in_time(node: FakeNvml) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool, claim(8):

        def first_in_line() -> None:
            with claim(8, timeout_s=1, on_wait=said.append):
                pass

        first = pool.submit(first_in_line)
        assert wait_for(lambda: bool(said))
        with pytest.raises(LaunchError, match="other claims came first"), claim(1, timeout_s=0.1):
            pass
        with pytest.raises(LaunchError, match="GPU 0 is taken by another run"):
            first.result(timeout=10)


def test_a_machine_that_is_too_small_says_so_at_once(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with claim(2) as gpus:
        assert gpus == (2, 3)
    with pytest.raises(LaunchError, match="CUDA_VISIBLE_DEVICES=2,3: 4 GPUs are needed, 2 can be used here"), claim(4):
        pass


def test_places_end_with_their_process(tmp_path: Path, node: FakeNvml) -> None:
    script = (
        "import sys, time; from workbench.launch.places import claim\n"
        "with claim(8, total=8) as gpus:\n    print(gpus, flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline().startswith("(0, 1")
    with pytest.raises(LaunchError), claim(1, timeout_s=0.1):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with claim(8) as gpus:
        assert len(gpus) == 8


# ---- ports -------------------------------------------------------------------------------------------------------


def test_a_port_is_free_and_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([7, 7, 7, 8])
    monkeypatch.setattr(places.secrets, "randbelow", lambda _: next(drawn))
    with reserved_port() as first, reserved_port() as second:
        assert (first, second) == (places.FIRST_PORT + 7, places.FIRST_PORT + 8)


def test_a_port_that_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(places, "FIRST_PORT", taken.getsockname()[1])
        monkeypatch.setattr(places.secrets, "randbelow", lambda _: 0)
        with pytest.raises(LaunchError, match="no free port") as caught, reserved_port():
            pass
        assert caught.value.kind == "port"
    with reserved_port() as port:
        assert port == places.FIRST_PORT


def test_processes_that_race_get_different_ports(tmp_path: Path) -> None:
    """Twenty ports for two processes with eight takers each: they meet again and again."""
    script = (
        "import os, sys, threading; from workbench.launch import places\n"
        "places.FIRST_PORT, places.LAST_PORT, places._PORT_TRIES = int(sys.argv[1]), int(sys.argv[1]) + 19, 100_000\n"
        "def take():\n"
        "    with places.reserved_port() as port:\n"
        "        os.write(1, b'%d\\n' % port); done.wait(60)\n"
        "done = threading.Event()\n"
        "takers = [threading.Thread(target=take) for _ in range(8)]\n"
        "for taker in takers: taker.start()\n"
        "sys.stdin.read(); done.set()\n"
    )
    argv = [sys.executable, "-c", script, str(places.FIRST_PORT + os.getpid() % 400 * 20)]
    racers = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)
    ]
    ports = [racer.stdout.readline() for racer in racers for _ in range(8) if racer.stdout is not None]
    for racer in racers:
        racer.communicate(timeout=20)
    assert len(set(ports)) == 16
