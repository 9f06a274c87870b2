# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.PHONY: help demo demo-readme test check format
.DELETE_ON_ERROR:

help:
	@echo "make demo    build MiniBench, fine-tune, sample, evaluate: a table in about a quarter of an hour on two cores"
	@echo "make demo-readme    the same with whole READMEs (task 1), which the paper found too dear to train"
	@echo "make test    every test"
	@echo "make check   ruff and mypy"
	@echo "make format  let ruff lay out the code"

demo: $(INSTALLED)
	@$(RUN) mlbench_data/mini/demo.py

demo-readme: $(INSTALLED)
	@$(RUN) mlbench_data/mini/demo.py --task 1 --out runs/demo-readme

test: $(INSTALLED)
	@$(RUN) -m pytest

check: $(INSTALLED)
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy

format: $(INSTALLED)
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

# torch comes first and by its exact version: an open range would bring several GB of CUDA.
$(INSTALLED): constraints-cpu.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=python3.11 or the like")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet -c constraints-cpu.txt torch setuptools
	$(RUN) -m pip install --quiet --no-deps -r constraints-cpu.txt
	$(RUN) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
