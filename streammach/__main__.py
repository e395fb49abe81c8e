"""``python -m streammach`` is the command ``streammach``."""

import sys

from streammach.cli.main import main

sys.exit(main())
