"""Where another server begins to write to the same log file."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.parse.records import DecodeRecord, EventKind, LogEvent, PrefillRecord, Record
from workbench.parse.stretches import Stretch

# Lines of a server that has read its arguments.
_AT_WORK = {EventKind.WEIGHTS, EventKind.KV_CACHE, EventKind.CAPACITY, EventKind.GRAPH_CAPTURE, EventKind.READY}

_BATCH_LINES = DecodeRecord | PrefillRecord | Stretch


class StartsBuilder:
    """Feed every record and stretch in order; ``count`` servers have written so far, the last one from ``line``.

    ``carried`` are the adjustments of the last one that it printed before its arguments.
    """

    def __init__(self) -> None:
        self.count, self.line = 1, 1
        self.carried: tuple[LogEvent, ...] = ()
        self._adjusted: list[LogEvent] = []
        self._args: Mapping[str, str] | None = None
        self._is_at_work = self._is_ready = self._has_spoken = False

    def feed(self, record: Record | Stretch) -> bool:
        """Whether this record shows that another server has started."""
        kind = record.kind if isinstance(record, LogEvent) else None
        if kind is EventKind.ADJUSTMENT and isinstance(record, LogEvent):
            # SGLang checks its arguments before it prints them; what it switches while serving is no part of that.
            if "Switch adaptive" not in record.text:
                self._adjusted.append(record)
            return False
        is_new = isinstance(record, LogEvent) and self._is_new(record)
        if isinstance(record, LogEvent) and is_new:
            self.count, self.line, self.carried = self.count + 1, record.line, tuple(self._adjusted)
            self._is_at_work = self._is_ready = self._has_spoken = False
        if isinstance(record, LogEvent) and kind is EventKind.SERVER_ARGS:
            self._args, self._is_ready = record.fields, False
        else:
            self._has_spoken = self._has_spoken or self._args is not None
        self._is_at_work = self._is_at_work or kind in _AT_WORK or isinstance(record, _BATCH_LINES)
        self._is_ready = self._is_ready or kind is EventKind.READY
        self._adjusted.clear()
        return is_new

    def _is_new(self, record: LogEvent) -> bool:
        if record.kind is EventKind.WEIGHTS:
            # Weights are loaded before a server is ready: the arguments of this one are not in the text.
            return self._is_ready
        if record.kind is not EventKind.SERVER_ARGS or self._is_other_node(record.fields):
            return False
        is_other = self._args is not None and dict(self._args) != dict(record.fields)
        return self._is_at_work or self._has_spoken or is_other

    def _is_other_node(self, args: Mapping[str, str]) -> bool:
        """Every node of one server prints the arguments, with a rank of its own."""
        return self._args is not None and self._args.get("node_rank") != args.get("node_rank")
