"""``python -m workbench.reference``"""

import os
import sys

from workbench.errors import MissingToolError
from workbench.reference.arguments import parse_arguments


def main() -> int:
    arguments, warnings = parse_arguments(sys.argv[1:])
    # OpenMP's threads spin while they wait; where other programs need the cores too, that costs more than it saves.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        # Only now: torch takes seconds to import, and a wrong flag should say so at once.
        from workbench.reference.run import serve
    except ModuleNotFoundError as error:
        missing = MissingToolError(
            f"the embedded engine needs the package {error.name}", next_step='pip install "eagle3-workbench[reference]"'
        )
        print(missing.render(), file=sys.stderr)  # noqa: T201
        return missing.exit_code
    return serve(arguments, warnings)


if __name__ == "__main__":
    raise SystemExit(main())
