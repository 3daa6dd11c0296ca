# Two commands do everything: `make demo` and `make test`. Both build .venv from the pinned set first.
# `make TORCH=pypi` takes torch's build for NVIDIA GPUs, even where pip finds the one for CPUs.
PYTHON ?= python3
TORCH ?= cpu
BIN := .venv/bin
READY := .venv/ready
PIP := $(BIN)/pip install --disable-pip-version-check -q --no-deps

# Compiled modules are kept, wherever the caller's environment says otherwise: pytest would rewrite 200 files of tests in
# each of its processes, and each command that a test starts would compile the package.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check lint types audit secrets sbom lock test-matrix soak gpu bench results docs format clean

demo: $(READY)
	$(BIN)/splitwiper demo

# Three processes on two cores: some tests wait. Each takes tests in a row from one end, so that few fixtures are made twice.
# The second run computes with another instruction set: no test may lean on the bits of one processor. Each day it takes
# another eighth of the tests; `make test-matrix` takes all of them.
test: check
	$(BIN)/pytest -n 3 --dist worksteal
	ATEN_CPU_CAPABILITY=default SPLITWIPER_TEST_SHARE=8 $(BIN)/pytest -n 2 --dist worksteal -m 'computes and not soak and not gpu'

# All at once: types and the scan for secrets compute, and the audit waits for an answer.
check: $(READY)
	@$(MAKE) --no-print-directory -j audit types secrets lint

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

# Exits with 0 where advisories are known for no package, 1 where they are, and 3 where nobody could be asked.
audit: $(READY)
	$(BIN)/python scripts/audit.py || test $$? -eq 3

secrets: $(READY)
	$(BIN)/python scripts/secrets_scan.py

sbom: $(READY)
	$(BIN)/python scripts/sbom.py

lock: $(READY)
	$(BIN)/python scripts/lock.py

test-matrix: $(READY)
	$(BIN)/python scripts/test_matrix.py

soak: $(READY)
	SPLITWIPER_TEST_SHARE=all $(BIN)/pytest -m soak -rA

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

# Every file is checked against its hash. torch's CPU build is taken where pip finds it, and PyPI's otherwise.
$(READY): requirements/*.txt pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("SplitWiper needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --require-hashes -r requirements/torch-$(TORCH).txt || $(PIP) --require-hashes -r requirements/torch-pypi.txt
	$(PIP) --no-build-isolation -e . -e lab
	$(BIN)/pip check
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
