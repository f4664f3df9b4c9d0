# `make demo` separates a few mixtures of digits; `make page` opens the page in the browser;
# `make test` checks the whole package. All of them create their environment in .venv.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo page page-pictures test test-slow check format docs reference pictures notebooks clean

demo: .venv/ready
	$(BIN)/basis separate sample --count 6 --out demo

page: .venv/ready-page
	$(BIN)/basis page --open

# One process with one thread per core: most tests are too small for threads.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --durations 20

# Tests that take half a minute or more.
test-slow: .venv/ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m slow

check: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site; warnings are errors.
docs: .venv/ready-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d .venv/doctrees docs .venv/site
	@echo "open .venv/site/index.html"

# docs/reference: public names with their docstrings, and the help of the commands.
reference: .venv/ready
	$(BIN)/python scripts/make_reference.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/ready-page: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[page]"
	touch $@

.venv/ready-dev: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
# azula requires torchvision and a downloader, which its denoisers do not need
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps "azula==0.11.1"
	touch $@

.venv/ready-docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

# The figures of the README and of the documentation.
pictures: .venv/ready
	$(BIN)/python scripts/make_pictures.py

# The stored output of the notebook.
notebooks: .venv/ready-dev
	$(BIN)/python scripts/run_notebooks.py

# The figures of docs/page.md, made by the tests of the page in Chromium.
page-pictures: .venv/ready-dev
	BASIS_SCREENSHOTS=docs $(BIN)/python -m pytest tests/page/test_browser.py

clean:
	rm -rf .venv demo
