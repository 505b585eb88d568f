"""Results of other benchmark tools, and server logs, as runs of a campaign in ``data/runs``.

What a file does not tell stays unknown: the user may state it for all files of one command, and a result whose arm
(with or without a drafter) nobody tells is left out, with a word.
"""

from workbench.importing.command import Outcome, Request, import_files
from workbench.importing.found import Stated

__all__ = ["Outcome", "Request", "Stated", "import_files"]
