"""Count the lines of each package: python benchmarks/lines.py prints all / without docstrings / also without comments
and blank lines."""

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "smdl"
counts = (Counter[str](), Counter[str](), Counter[str]())
for path in SOURCE.rglob("*.py"):
    text, package = path.read_text(), path.relative_to(SOURCE).parts[0].replace(".py", "")
    alone = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    strings = [node for node in alone if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    documented = {line for node in strings for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    rest = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in documented]
    code = [line for line in rest if line and not line.startswith("#")]
    for counter, lines in zip(counts, (text.splitlines(), rest, code), strict=True):
        counter[package] += len(lines)
for package in [each for each, _ in counts[0].most_common()]:
    print(f"| {package} | " + " | ".join(f"{counter[package]:,}" for counter in counts) + " |")
print("| together | " + " | ".join(f"{counter.total():,}" for counter in counts) + " |")
