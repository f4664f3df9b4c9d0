# `make demo` separates a few mixtures of digits; `make test` checks the whole package.
# Both set up everything they need in .venv.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format clean

demo: .venv/ready
	$(BIN)/basis separate sample --count 6 --out demo

test: check
	$(BIN)/python -m pytest

check: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/ready-dev: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv demo
