"""Write the docstrings of Python's standard library as a table for `smdl select --text`: python examples/docstrings.py

Needs pip install "submodular-data-loader[select]". The table has the columns name, module and text.
"""

import argparse
import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3"}


def docstrings(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, module and docstring of each function and class."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if LEFT_OUT & set(parts):
            continue
        module = parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
                yield f"{module}.{node.name}", module, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("docstrings.parquet"))
    out = parser.parse_args().out
    names, modules, texts = zip(*docstrings(Path(sysconfig.get_path("stdlib"))), strict=True)
    pq.write_table(pa.table({"name": names, "module": modules, "text": texts}), out)
    print(f"{len(texts)} docstrings of {len(set(modules))} modules: {out}")


if __name__ == "__main__":
    main()
