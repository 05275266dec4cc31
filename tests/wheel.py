"""Run the code of the site's first page with the installed wheel: `make dist` calls this outside of the clone."""

import re
import sys
from pathlib import Path

import smdl

if Path(sys.prefix) not in Path(smdl.__file__).parents:
    sys.exit(f"smdl is not the installed one: {smdl.__file__}")
page = (Path(__file__).parents[1] / "docs" / "index.md").read_text()
blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
for block in blocks:
    exec(block)
print(f"smdl {smdl.__version__}: {len(blocks)} blocks of code ran")
