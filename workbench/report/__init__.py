"""Executed notebooks to self-contained pages. The only room that imports nbconvert."""

from workbench.report.render import render_page

__all__ = ["render_page"]
