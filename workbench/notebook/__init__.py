"""Run notebooks: parameters checked first, one process a run, a wall-clock limit, a status that can be trusted.

The only room that imports papermill.
"""

from workbench.notebook.parameters import Parameter, check_parameters, parameters_of
from workbench.notebook.run import NotebookJob, NotebookRun, run_notebook, run_notebooks, status_file

__all__ = [
    "NotebookJob",
    "NotebookRun",
    "Parameter",
    "check_parameters",
    "parameters_of",
    "run_notebook",
    "run_notebooks",
    "status_file",
]
