# Every target does its own set-up: on a fresh machine `make run` or `make test` is all there is to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := -m pytest --numprocesses auto --dist loadgroup
# Many containers set it. Then every process, of which the tests start hundreds, would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check test-all format-check lint types format docs site pictures wheel release-check lock oldest newest clean

run: $(READY)
	$(BIN)/gradverify run specs/

test: $(READY)
	$(BIN)/python $(PYTEST) -m "not slow" --few

check: format-check lint types test-all

test-all: $(READY)
	$(BIN)/python $(PYTEST)

format-check: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# docs/checks.md from the pages beside the checks, the workers and the causes, with what their examples print when they
# are run, and the site of all pages.
docs: $(READY)
	$(BIN)/python -m benchmarks.examples docs/checks.md
	$(MAKE) site

# The site from the pages as they are, into site/. A broken link, or a page that is not in mkdocs.yml, is an error.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# Every picture in docs/pictures, from real runs; needs a Chromium (.ci/browser).
pictures: $(READY)
	$(BIN)/python -m benchmarks.pictures

wheel: $(READY)
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

# Builds sdist and wheel in dist/, checks both, and runs the README's first example with the wheel installed.
release-check: $(READY)
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -m tests.release_check dist

# uv installs in a seventh of pip's time. It reads none of pip's settings, so it is told what the environment says of
# where pip looks for packages; where it fails all the same, pip installs.
# Nothing is compiled yet: of torch and all others, what is imported is a tenth, and is kept once it is compiled.
PLACES := $(PIP_FIND_LINKS:%=--find-links '%') $(PIP_INDEX_URL:%=--default-index '%') \
    $(PIP_EXTRA_INDEX_URL:%=--index '%') $(if $(PIP_NO_INDEX),--no-index)
DEVELOPMENT := --constraint constraints.txt --no-build-isolation --editable '.[dev]'
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gradverify needs Python 3.11 or newer; name one with: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt setuptools uv
	$(BIN)/uv pip install --quiet --no-cache --python $(BIN)/python $(PLACES) $(DEVELOPMENT) || \
	    $(BIN)/python -m pip install --quiet --no-compile $(DEVELOPMENT)
	touch $@

# Pins the newest version of every package that pyproject.toml and constraints.in allow, on all platforms.
lock: $(READY)
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev --no-annotate \
	    --custom-compile-command 'make lock' --output-file constraints.txt pyproject.toml constraints.in

# The whole suite with the lowest versions that pyproject.toml allows, and with the newest that there are. Each has an
# environment of its own, and on Linux downloads gigabytes of CUDA packages with torch. Results: docs/compatibility.md.
oldest: $(READY)
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra test --no-annotate --output-file .oldest.txt pyproject.toml
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --requirement .oldest.txt --editable .
	.venv-oldest/bin/python $(PYTEST)

newest:
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet --editable '.[test]'
	.venv-newest/bin/python $(PYTEST)

clean:
	rm -rf .venv .venv-oldest .venv-newest .oldest.txt build dist site *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .gradverify
