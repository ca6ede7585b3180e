# `make demo` and `make test` need nothing but Python >= 3.11.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test lint slow test-minimal test-integrations docs notebooks clean

# The stamp is renewed when the dependencies change.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/tcsaea demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# The site, in build/docs.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -n -W --keep-going notebooks build/docs
	@echo "the site is in build/docs/index.html"

$(VENV)/.docs $(VENV)/.notebooks: $(VENV)/.%: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$*]'
	touch $@

slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow --timeout 7200

# With the lowest versions of pyproject.toml, but for torch, whose older builds for the CPU are not
# on the index. Pictures look a little different then; matplotlib 3.8 warns beside newer pyparsing.
MINIMAL := build/minimal
MINIMAL_TESTS := tests/test_optimizer.py tests/models tests/acquisition tests/botorch_models \
	tests/plotting tests/test_result.py tests/test_existing_data.py tests/test_journal.py

test-minimal:
	$(PYTHON) -m venv $(MINIMAL)
	grep '^torch==' constraints.txt > $(MINIMAL)/constraints.txt
	sed -n '/^dependencies = /,/^dask = /s/^    "\([a-z_]*\)>=\(.*\)",$$/\1==\2/p' pyproject.toml \
		| grep -v '^torch==' >> $(MINIMAL)/constraints.txt
	$(MINIMAL)/bin/python -m pip install --quiet -c $(MINIMAL)/constraints.txt -e '.[plot]' \
		beartype hypothesis pytest pytest-timeout 'pyparsing<3.2'
	$(MINIMAL)/bin/python -m pytest $(MINIMAL_TESTS) --ignore tests/plotting/test_images.py

# With the real Dask, submitit, Optuna, Ax and pymoo, which `make test` does without.
INTEGRATIONS := build/integrations
test-integrations:
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet -c constraints.txt \
		-e '.[dev,dask,optuna,ax,pymoo]' submitit ipywidgets
	$(INTEGRATIONS)/bin/python -m pytest -m 'slow or not slow' tests/integrations tests/test_dask.py \
		tests/test_jobs.py tests/test_progress.py tests/problems/test_pymoo_adaptor.py \
		tests/benchmarks/test_peers.py

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# Each notebooks/*.py is run into its .ipynb, with outputs.
notebooks: $(VENV)/.notebooks
	$(BIN)/python notebooks/execute.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis demo
