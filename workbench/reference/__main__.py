"""``python -m workbench.reference``"""

import sys

from workbench.reference.main import main

sys.exit(main())
