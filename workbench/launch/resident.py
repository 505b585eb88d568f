"""One server for many starts in turn: the embedded engine takes another shape instead of being started again.

SGLang 0.5.14 changes neither steps nor draft tokens of a server that runs (`/set_internal_state` takes none of them).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType

from workbench.launch.places import reserved_port
from workbench.launch.process import Server, serve
from workbench.launch.ready import READY
from workbench.launch.redaction import blank_out, secret_values
from workbench.reference.arguments import RESHAPE

_MODULE = "workbench.reference"


@dataclass(frozen=True, slots=True)
class _Held:
    server: Server
    port: int
    env: Mapping[str, str]


class Resident:
    """Holds one server at most, which ends with the block of the resident, or when something failed while it served."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._held: _Held | None = None

    def __enter__(self) -> Resident:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        self._held = None
        self._stack.close()

    @contextlib.contextmanager
    def serve(
        self,
        argv_at: Callable[[int], list[str]],
        *,
        env: Mapping[str, str],
        log: Path,
        ready_timeout_s: float,
        on_phase: Callable[[str], None],
        cwd: Path,
    ) -> Iterator[tuple[Server, list[str]]]:
        """The server in the shape of a command line, which ``argv_at`` gives for a port, and that command line.

        It stays up when the block is left. One that runs already changes its shape; where it cannot, it is ended and
        another one is started. ``log`` begins anew for each shape, as if the server had been started so.

        Raises
        ------
        LaunchError
            As `workbench.launch.process.serve`.
        """
        if self._held is None or not self._reshaped(self._held, argv_at, env, log, ready_timeout_s, on_phase):
            self.end()
            port = self._stack.enter_context(reserved_port())
            started = serve(
                argv_at(port),
                env={**env, RESHAPE: "1"},
                log=log,
                url=f"http://127.0.0.1:{port}",
                ready_timeout_s=ready_timeout_s,
                on_phase=on_phase,
                cwd=cwd,
            )
            try:
                self._held = _Held(self._stack.enter_context(started), port, dict(env))
            except BaseException:
                self.end()
                raise
        held = self._held
        assert held is not None
        argv = argv_at(held.port)
        try:
            yield held.server, argv
        except BaseException:
            self.end()
            raise
        finally:
            with contextlib.suppress(OSError):
                blank_out(log, secret_values(argv, env))
        if held.server.failure() is not None:
            self.end()

    def _reshaped(
        self,
        held: _Held,
        argv_at: Callable[[int], list[str]],
        env: Mapping[str, str],
        log: Path,
        timeout_s: float,
        on_phase: Callable[[str], None],
    ) -> bool:
        argv = argv_at(held.port)
        if held.env != env or held.server.failure() is not None or _MODULE not in argv:
            return False
        on_phase("changing the shape of the server that runs")
        # As for a server that is started: what it costs to become ready belongs to the start.
        began = datetime.now(UTC).isoformat(timespec="seconds")
        log.parent.mkdir(parents=True, exist_ok=True)
        asked = {"argv": argv[argv.index(_MODULE) + 1 :], "log": str(log.absolute())}
        if not _answered(held.port, json.dumps(asked), timeout_s):
            # What was begun there is not of a start: a fresh one writes its own log.
            with contextlib.suppress(OSError):
                log.unlink(missing_ok=True)
            return False
        self._held = replace(held, server=replace(held.server, log=log, started_at=began))
        on_phase(READY)
        return True


def _answered(port: int, body: str, timeout_s: float) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("POST", "/reshape", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        return reply.status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
