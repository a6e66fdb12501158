# Everything runs in .venv, which is made on first use. Another Python: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AUTOGRAD := $(VENV)/.autograd

.PHONY: help demo bars test lint benchmark clean

help:
	@echo "make demo       denoise a sample picture; clean, noisy and restored in evoem-demo.png"
	@echo "make bars       learn bars with the three models; text, and a picture in bars.png"
	@echo "make test       lint, type check and tests"
	@echo "make lint       ruff and mypy alone"
	@echo "make benchmark  time per state, threads, memory"
	@echo "make clean      remove .venv, caches and the demos' pictures"

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "evoem needs Python 3.11 or later: set PYTHON, now $(PYTHON)." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "Python's venv module must work (Debian and Ubuntu: package python3-venv)." >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# PyTorch and JAX are large, and nothing but tests of models written in them needs them.
$(AUTOGRAD): $(READY) requirements-autograd.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-autograd.txt
	@touch $@

demo: $(READY)
	$(BIN)/evoem demo --force

bars: $(READY)
	$(BIN)/python examples/bars.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# In several processes, of which each compiles for itself what is not cached: a few are enough. Then
# some once more as plain Python, where words overflow as they should, but not silently.
test: lint $(AUTOGRAD)
	$(BIN)/pytest --numprocesses auto --maxprocesses 4
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 -m interpreted \
		-W "ignore:overflow encountered in scalar:RuntimeWarning"

benchmark: $(READY)
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis bars.png evoem-demo.png
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
