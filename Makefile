# Each target installs what it needs: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
LOWEST := .venv-lowest
INTEGRATIONS := .venv-integrations
WHEEL := .venv-wheel
# Every kernel runs in these; `make test` repeats them with bounds checks, in one process and without optimisation:
# compiling them takes 14 s of CPU time where it took 23. Numba cannot cache some of them then, and says so.
KERNEL_TESTS := tests/engine/test_frozen_selections.py tests/engine/test_extreme_numbers.py
PARALLEL := -n auto --dist loadgroup
PIP := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test coverage fuzz test-fast test-lowest test-cuda test-integrations bench docs dist install clean

demo: install
	$(BIN)/python examples/demo.py --out runs/demo

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/pyright
	$(BIN)/pytest $(PARALLEL) -m "not integrations"
	NUMBA_BOUNDSCHECK=1 NUMBA_OPT=0 NUMBA_CACHE_DIR=$(CURDIR)/.venv/numba-bounds $(BIN)/pytest -p no:xdist \
		-W ignore::numba.core.errors.NumbaWarning -m "not slow and not integrations" $(KERNEL_TESTS)

# The lines of src/ that the tests run, without compiled loops. Fails below the share in pyproject.toml. Best with Python
# 3.14: in 3.11, a thread may end when it and another are about to be traced, and whoever needs it waits forever.
coverage: install
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL) -m "not integrations"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# The property tests with fresh seeds. `make test` draws the same examples in every run.
MINUTES ?= 10
fuzz: install
	$(BIN)/python tests/fuzz.py $(MINUTES) $(PARALLEL)

test-fast: install
	$(BIN)/pytest $(PARALLEL) -m "not slow and not integrations"

# The fast tests with the lowest versions that pyproject.toml admits. Versions of numba cannot share a cache. Picks are
# compared with the recorded ones; `make test` searches for other cases, which would compile most kernels once more.
test-lowest: $(LOWEST)/.installed
	NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/numba $(LOWEST)/bin/pytest $(PARALLEL) -m "not slow and not integrations" \
		--ignore tests/engine/greedy/test_specification.py --ignore tests/engine/greedy/test_guarantees.py

# The tests that run on any device, on a GPU. `make test` runs them on the CPU. SMDL_DEVICE names another device: mps.
test-cuda: install
	SMDL_DEVICE=$(or $(SMDL_DEVICE),cuda) $(BIN)/pytest -m cuda -rs

# The tests that need other frameworks, in an environment of their own. `make test` leaves them out.
test-integrations: $(INTEGRATIONS)/.installed
	$(INTEGRATIONS)/bin/pytest -m integrations

bench: .venv/.benched
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/complexity.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/augment.py

# The site, in site/, with the tutorials run. A broken link, a page without a place, a name that does not exist or a
# cell that fails is an error. With --quiet, mkdocs would not count its warnings.
docs: .venv/.documented
	OMP_WAIT_POLICY=passive NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The distribution, checked: its metadata, and in a fresh environment the code of the first page with the wheel alone, and
# smdl select with its extra and nothing that only training needs.
dist: .venv/.released
	rm -rf dist $(WHEEL)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python $(PIP) -c constraints.txt dist/*.whl
	cd dist && ../$(WHEEL)/bin/smdl --version && ../$(WHEEL)/bin/python -P ../tests/wheel.py
	$(WHEEL)/bin/python $(PIP) -c constraints.txt "$$(echo dist/*.whl)[select]"
	cd dist && ../$(WHEEL)/bin/python -P ../tests/wheel.py select

install: .venv/.installed

# Installed again only if the dependencies or their versions changed.
.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) -c constraints.txt -e ".[test]"
	touch $@

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python $(PIP) -c constraints-lowest.txt -e ".[test]"
	touch $@

$(INTEGRATIONS)/.installed: pyproject.toml constraints.txt
	test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python $(PIP) -c constraints.txt -e ".[test,integrations]"
	touch $@

.venv/.benched: .venv/.installed
	$(BIN)/python $(PIP) -c constraints.txt -e ".[bench]"
	touch $@

.venv/.documented: .venv/.installed
	$(BIN)/python $(PIP) -c constraints.txt -e ".[docs]"
	touch $@

.venv/.released: .venv/.installed
	$(BIN)/python $(PIP) -c constraints.txt -e ".[release]"
	touch $@

clean:
	rm -rf .venv $(LOWEST) $(INTEGRATIONS) $(WHEEL) build dist site .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
