# `make demo` separates a few mixtures of digits; `make page` opens a page on which you do so
# yourself; `make test` checks the whole package. All of them set up everything they need in .venv.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo page page-pictures test test-slow check format docs pictures notebooks clean

demo: .venv/ready
	$(BIN)/basis separate sample --count 6 --out demo

# A page on this computer, opened in the browser.
page: .venv/ready-page
	$(BIN)/basis page --open

# One process of one thread for each core: most tests are too small for threads.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --durations 20

# Tests that train for half a minute and more.
test-slow: .venv/ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m slow

check: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, without warnings; nothing is fetched, neither to build nor to read it.
docs: .venv/ready-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d .venv/doctrees docs .venv/site
	@echo "open .venv/site/index.html"

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
# azula asks for torchvision and a downloader, which its denoisers do not need
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps "azula==0.11.1"
	touch $@

.venv/ready-docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

# The pictures of the README, made again by the package itself.
pictures: .venv/ready
	$(BIN)/basis separate sample --count 4 --seed 0 --out .venv/two
	$(BIN)/basis separate sample --k 4 --count 2 --seed 0 --effort best --out .venv/four
	$(BIN)/basis separate sample --k 4 --count 2 --seed 0 --sampler basis --keep 1 0.36 0.13 0.046 0.01 --out .venv/states
	cp .venv/two/panel.png docs/panel.png
	cp .venv/four/panel.png docs/four.png
	cp .venv/states/states.png docs/states.png

# What the notebooks show, made again.
notebooks: .venv/ready-dev
	$(BIN)/python scripts/run_notebooks.py

# The pictures of docs/page.md, made by the tests of the page in Chromium.
page-pictures: .venv/ready-dev
	BASIS_SCREENSHOTS=docs $(BIN)/python -m pytest tests/test_page.py

clean:
	rm -rf .venv demo
