"""`python -m s2pg`: the command line without its script."""

import sys

from s2pg.cli import main

sys.exit(main())
