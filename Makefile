# What the README names. The virtual environment is made where there is none: Python 3.11 to 3.13.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-system test-lowest test-slow test-faults bench bench-generate bench-gpu bench-oracle figures notebooks docs lint

demo: .venv/demo
	$(BIN)/python -m elo_exp
	@echo 'activate      . .venv/bin/activate'

test: .venv/dev
	$(BIN)/python -m pytest --durations=15

test-system: .venv/dev  # whole runs and sweeps, pages, notebooks, the site, the wheel, launchers, trackers' SDKs, a browser
	$(BIN)/python -m pytest -m "system and not slow and not faults"

test-lowest: .venv-lowest/installed  # the demo, three paid judges and files, on the lowest allowed versions
	.venv-lowest/bin/python -m elo_exp
	.venv-lowest/bin/python -m pytest -o filterwarnings=default tests/test_claude.py tests/test_gemini.py \
	tests/test_openai_judge.py tests/test_export.py tests/test_figures.py

test-slow: .venv/dev
	$(BIN)/python -m pytest -n 0 -m slow -s

test-faults: .venv/dev
	$(BIN)/python -m pytest --dist load -m "faults or not faults" tests/test_faults.py tests/test_paid_once.py

bench: .venv/bench
	$(BIN)/python -m tests.benchmarks.bench_elo
	$(BIN)/python -m tests.benchmarks.bench_bradley_terry
	$(BIN)/python -m tests.benchmarks.bench_rate
	$(BIN)/python -m tests.benchmarks.bench_judging
	$(BIN)/python -m tests.benchmarks.bench_regular_expressions

bench-generate: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.bench_generate
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.bench_poe

bench-gpu: .venv/dev
	$(BIN)/python -m tests.benchmarks.bench_gpu

bench-oracle: .venv/dev
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.bench_oracle

figures: .venv/demo  # of the README
	$(BIN)/python -m elo_exp tracker=local hydra.run.dir=outputs/readme
	cp outputs/readme/figures/ratings.svg docs/figures/

notebooks: .venv/dev  # with the outputs of the demo
	for notebook in notebooks/*.ipynb; do folder=$$(mktemp -d) && cp $$notebook $$folder && \
	$(BIN)/python -m nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False $$folder/*.ipynb && \
	cp $$folder/*.ipynb notebooks/ || exit; done
	$(BIN)/python -m ruff format --quiet notebooks

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "elo_exp needs Python 3.11 to 3.13, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv

.venv/demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ .venv/demo .venv/docs

.venv/docs: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@ .venv/demo

.venv-lowest/installed: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) -m tests.lowest_versions openai gemini > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/constraints.txt \
	--editable '.[openai,gemini]' pytest pytest-xdist hypothesis
	touch $@

.venv/bench: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,bench]'
	touch $@ .venv/dev .venv/demo
