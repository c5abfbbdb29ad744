# Two commands do all the set-up: `make demo` and `make test`. Both create their own .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready

.PHONY: demo test lint types imports structure pytest docs bench reproduce clean

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("relunmd needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

demo: $(READY)
	$(BIN)/python -m relunmd demo

reproduce: $(READY)
	$(BIN)/python -m reproduction $(ARGS)

test: lint types imports structure pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

structure: $(READY)
	$(BIN)/python -m tests.structure

pytest: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

$(DOCS_READY): docs/requirements.txt $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	touch $(DOCS_READY)

docs: $(DOCS_READY)
	$(BIN)/python -m sphinx -b html -W --keep-going docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.tsvd
	$(BIN)/python -m benchmarks.readings
	$(BIN)/python -m benchmarks.flagship
	$(BIN)/python -m benchmarks.sparse tfidf
	$(BIN)/python -m benchmarks.sparse growth
	$(BIN)/python -m benchmarks.checkpoint
	$(BIN)/python -m benchmarks.estimator
	$(BIN)/python -m benchmarks.command
	$(BIN)/python -m benchmarks.distributed

clean:
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/api/generated docs/api/backreferences .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
