"""How figures and tables look, and how both are put into a notebook."""

from workbench.theme.show import csv_link, figure_html, show_facts, show_figure, show_table, table_html
from workbench.theme.style import (
    ORIGINS,
    ROLES,
    Mark,
    SeriesStyle,
    new_figure,
    rows_height,
    safe_label,
    series_styles,
    themed,
)

__all__ = [
    "ORIGINS",
    "ROLES",
    "Mark",
    "SeriesStyle",
    "csv_link",
    "figure_html",
    "new_figure",
    "rows_height",
    "safe_label",
    "series_styles",
    "show_facts",
    "show_figure",
    "show_table",
    "table_html",
    "themed",
]
