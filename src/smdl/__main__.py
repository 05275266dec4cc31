"""python -m smdl."""

import sys

from smdl.cli.commands import main

sys.exit(main())
