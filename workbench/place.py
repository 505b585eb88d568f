"""One place of a campaign, as a process: ``python -m workbench.place``, started by ``workbench.packing``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import BinaryIO, TextIO

from workbench.errors import InputError
from workbench.launch.sharing import Company, pin
from workbench.measure import measure_job
from workbench.packing import JOB, STOP


def main() -> int:
    # Whatever else prints must not come between our lines.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Unbuffered: a thread that waits in a buffered reader cannot be left behind at the exit.
    orders = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    line = orders.readline()
    if not line.endswith(b"\n"):
        return 1
    job = JOB.validate_json(line)
    pin(job.cpus)
    company = Company(job.places, job.places)
    threading.Thread(target=_listen, args=(orders, company), daemon=True, name="orders").start()
    try:
        ended = measure_job(job, say=lambda text: _tell(told, say=text), company=company)
    except KeyboardInterrupt:
        return 130
    except InputError as error:
        _tell(told, fault={"what": error.what, "where": error.where, "next_step": error.next_step})
        return error.exit_code
    _tell(told, ended=[[run.run_id, run.state.value, run.reason] for run in ended])
    return 0


def _listen(orders: BinaryIO, company: Company) -> None:
    """Numbers of places that work, or `STOP`. At their end the parent is gone, and so is the server after this one."""
    while line := orders.readline():
        if line.strip() == STOP:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        elif line.strip().isdigit():
            company.tell(int(line))
    os._exit(1)


def _tell(told: TextIO, **facts: object) -> None:
    told.write(json.dumps(facts) + "\n")
    told.flush()


if __name__ == "__main__":
    sys.exit(main())
