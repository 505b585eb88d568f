"""Loaded by every Python process of a test that has this folder on its path: stops where the test wants it to stand.

``$FAULTS_HOLD`` is a pattern of paths, and behind ``|`` a text. A process that is about to give such a name to a file
with that text writes it into ``$FAULTS_HELD``, and waits until that is gone.
With ``$FAULTS_CLOCK`` the clock goes backwards.
"""

import datetime
import itertools
import os
import sys
import time
from fnmatch import fnmatch


def _hold(event, arguments):
    if event != "os.rename":
        return
    pattern, _, text = os.environ["FAULTS_HOLD"].partition("|")
    if not fnmatch(os.fsdecode(arguments[1]), pattern) or not _holds(arguments[0], text):
        return
    held = os.environ["FAULTS_HELD"]
    with open(f"{held}.new", "w", encoding="utf-8") as file:
        file.write(os.fsdecode(arguments[1]))
    os.link(f"{held}.new", held)
    deadline = time.monotonic() + 60
    while os.path.exists(held) and time.monotonic() < deadline:
        time.sleep(0.05)


def _holds(path, text):
    with open(path, encoding="utf-8") as file:
        return text in file.read()


def _turn_the_clock_back():
    """Each look at the clock is an hour before the last one, for the module time and for datetime."""
    looks = itertools.count()

    class Backwards(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) - datetime.timedelta(hours=next(looks))

    datetime.datetime = Backwards
    now = time.time
    time.time = lambda: now() - 3600 * next(looks)


if os.environ.get("FAULTS_CLOCK"):
    _turn_the_clock_back()
if os.environ.get("FAULTS_HOLD"):
    sys.addaudithook(_hold)
