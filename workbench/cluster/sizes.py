"""What a start asks of a node, so that as many as were asked for share one, and baselines share it with nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.sweep import Start


@dataclass(frozen=True, slots=True)
class Node:
    """A node that lives. ``number`` is by which this command calls it; CPUs and GPUs are those that Ray gives out."""

    node_id: str
    number: int
    host: str
    cpus: int
    gpus: int

    def __str__(self) -> str:
        return f"node {self.number}: {self.host}, {_counted(self.cpus, 'CPU')}, {_counted(self.gpus, 'GPU')}"


@dataclass(frozen=True, slots=True)
class Ask:
    """What Ray is asked for, and how many such starts the cluster can hold at once."""

    cpus: int
    gpus: int
    room: int

    def __str__(self) -> str:
        return f"{_counted(self.cpus, 'free CPU')}" + (f" and {_counted(self.gpus, 'free GPU')}" if self.gpus else "")


def ask_for(start: Start, nodes: Sequence[Node], places: int, engine: str) -> Ask | None:
    """What a start needs of one node; ``None`` where no node has it.

    A node is shared by its CPUs, all of them for a start that is alone or where a node has one place. Only the nodes
    with the most CPUs count: on unlike machines no two measurements could be compared.
    """
    gpus = gpus_of(start, engine)
    able = [node for node in nodes if node.gpus >= gpus and node.cpus > 0]
    if not able:
        return None
    cpus = max(node.cpus for node in able)
    alike = [node for node in able if node.cpus == cpus]
    if start.alone or places == 1:
        return Ask(cpus, gpus, len(alike))
    # The least of which no more than so many fit; whole, since Ray gives out no parts above one.
    each = cpus // (places + 1) + 1
    room = sum(min(cpus // each, node.gpus // gpus if gpus else places) for node in alike)
    return Ask(each, gpus, room)


def gpus_of(start: Start, engine: str) -> int:
    return start.server.tp_size * start.server.dp_size if engine == "sglang" else 0


def left_out(nodes: Sequence[Node]) -> str:
    """A sentence on nodes that are not used because others have more CPUs; empty where all are alike."""
    able = [node for node in nodes if node.cpus > 0]
    most = max((node.cpus for node in able), default=0)
    smaller = [str(node.number) for node in able if node.cpus < most]
    if not smaller:
        return ""
    return (
        f"nodes with fewer than {most} CPUs may stay without a start, for they are not comparable: {', '.join(smaller)}"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
