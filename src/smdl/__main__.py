"""python -m smdl."""

import sys

from smdl.cli import main

sys.exit(main())
