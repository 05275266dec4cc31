"""Check the installed wheel: `make dist` calls this outside of the clone.

python tests/wheel.py           runs the code of the site's first page
python tests/wheel.py select    runs smdl select and its report, where the extra select is installed and train is not
"""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import smdl
from smdl.common.messages import EXTRAS

if Path(sys.prefix) not in Path(smdl.__file__).parents:
    sys.exit(f"smdl is not the installed one: {smdl.__file__}")
if sys.argv[1:] == ["select"]:
    extra = [name for name in EXTRAS["train"] if name not in (*EXTRAS["select"], "yaml") and find_spec(name)]
    if extra:
        sys.exit(f"the extra select installs what only training needs: {', '.join(extra)}")
    with TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", np.random.default_rng(0).normal(size=(60, 3)))
        command = [sys.executable, "-P", "-m", "smdl", "select", "x.npy", "--size", "5", "--out", "chosen.npy"]
        subprocess.run(command, cwd=folder, check=True)
        chosen, report = np.load(f"{folder}/chosen.npy"), Path(folder, "chosen.select", "report.html")
        if len(set(chosen.tolist())) != 5 or not report.exists():
            sys.exit(f"smdl select chose {chosen}, and its report {'exists' if report.exists() else 'is missing'}")
else:
    page = (Path(__file__).parents[1] / "docs" / "index.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for block in blocks:
        exec(block)
    print(f"smdl {smdl.__version__}: {len(blocks)} blocks of code ran")
