# Each target sets up what it needs: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
BENCHED := .venv/.benched

.PHONY: demo test bench install clean

demo: install
	$(BIN)/smdl compare --config configs/digits.yaml --minutes 2 --out runs/demo

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pytest -n auto

bench: $(BENCHED)
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/complexity.py
	$(BIN)/python benchmarks/augment.py

install: $(INSTALLED)

# Made anew only when the dependencies or their pins changed.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@

$(BENCHED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
