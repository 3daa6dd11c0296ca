# Two commands do everything: `make demo` and `make test`. Both build .venv from the pinned set first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test soak gpu bench results docs format clean

demo: $(READY)
	$(BIN)/splitwiper demo

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

soak: $(READY)
	$(BIN)/pytest -m soak -rA

gpu: $(READY)
	$(BIN)/pytest -m gpu -rA

bench: $(READY)
	$(BIN)/python -m benchmarks

results: $(READY)
	$(BIN)/python scripts/results.py

docs: $(READY)
	$(BIN)/python scripts/docs.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("SplitWiper needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -q -r requirements/dev.txt
	$(BIN)/pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
