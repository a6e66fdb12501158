# Everything runs in .venv, which is made on first use. Another Python: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AUTOGRAD := $(VENV)/.autograd
DOCS := $(VENV)/.docs

.PHONY: help demo bars test test-napari lint faults fuzz benchmark docs kernels clean

help:
	@echo "make demo       denoise a sample picture; clean, noisy and restored in evoem-demo.png"
	@echo "make bars       learn bars with the three models; text, and a picture in bars.png"
	@echo "make test       lint, type check and tests"
	@echo "make test-napari  the plugin in a real napari, under Xvfb; installs napari in .venv-napari"
	@echo "make lint       ruff and mypy alone"
	@echo "make faults     kill small runs at 1000 random moments and resume them (FAULTS=number)"
	@echo "make fuzz       20,000 damaged files and odd arguments; some hours"
	@echo "make benchmark  start-up, time per state, threads, memory"
	@echo "make docs       the documentation site with its gallery, in build/docs"
	@echo "make kernels    list anew which kernels are compiled ahead, after their arguments changed"
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

$(DOCS): $(READY) requirements-docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
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
# what starts processes itself, by MPI. Then some once more as plain Python, where words overflow as
# they should, but not silently.
test: lint $(AUTOGRAD)
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --ignore tests/processes
	$(BIN)/pytest tests/processes
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 -m interpreted \
		-W "ignore:overflow encountered in scalar:RuntimeWarning"

# The plugin in a real napari, which is large: in an environment of its own, on a screen that nobody
# sees (Debian: xvfb xauth libgl1-mesa-dri libegl1 libxcb-icccm4 libxcb-keysyms1 libxcb-image0
# libxcb-render-util0 libxcb-cursor0 libxkbcommon-x11-0).
NAPARI := .venv-napari
test-napari:
	@test -d $(NAPARI) || $(PYTHON) -m venv $(NAPARI)
	$(NAPARI)/bin/python -m pip install --quiet --disable-pip-version-check "napari[pyqt6]" pytest scikit-image matplotlib hypothesis .
	$(NAPARI)/bin/npe2 validate evoem
	xvfb-run -a $(NAPARI)/bin/python -m pytest -W default tests/napari_plugin

# One thread each, so that nothing but a run is forked.
FAULTS ?= 1000
faults: $(READY)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python tests/faults.py $(FAULTS) --eight

fuzz: $(READY)
	$(BIN)/python tests/fuzz/campaign.py 20000

benchmark: $(READY)
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/speed.py

# Examples of the gallery are run; warnings are errors.
docs: $(DOCS)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The site is in build/docs: open build/docs/index.html."

kernels: $(READY)
	$(BIN)/python tests/images/kernel_lists.py

clean:
	rm -rf $(VENV) build/docs docs/gallery docs/reference/api docs/sg_execution_times.rst .mypy_cache .pytest_cache .ruff_cache .hypothesis bars.png evoem-demo.png
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
