"""Drives a server and records every request: `drive` for one load, `measure_window` for a measurement."""

from workbench.load.client import drive
from workbench.load.records import LoadResult, RequestRecord
from workbench.load.window import Windows, measure_window, server_info

__all__ = ["LoadResult", "RequestRecord", "Windows", "drive", "measure_window", "server_info"]
