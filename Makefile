# make demo   sets up what it needs and runs the main job on built-in data
# make test   sets up what it needs and runs all tests
# make bench  compares vcmc with what a user would pick instead, in an hour or two; writes benchmarks/RESULTS.md
# make docs   sets up what it needs and builds the documentation into site/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP = $(shell command -v uv >/dev/null 2>&1 && echo uv pip install -q --python $(BIN)/python || echo $(BIN)/python -m pip install -q --disable-pip-version-check)

# Tests run in several processes, whose threads would get into each other's way.
test: export OPENBLAS_NUM_THREADS = 1

# Bytecode makes imports three times as fast; some shells switch it off.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test browser setup lint docs bench constraints clean

demo: setup
	$(BIN)/vcmc demo

test: setup browser
	$(BIN)/python -m pytest

# For the tests of the report page, which are skipped without it.
APT := timeout 300 apt-get -qq
browser:
	@{ command -v chromium && command -v chromedriver; } >/dev/null 2>&1 || \
	 { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 && echo "installing Chromium …" && \
	   { $(APT) install -y --no-install-recommends chromium chromium-driver || \
	     { $(APT) update && $(APT) install -y --no-install-recommends chromium chromium-driver; }; } >/dev/null 2>&1; } || \
	 echo "There is no Chromium: the report page is not tested in a browser. Try: apt-get install chromium chromium-driver"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The theme's makers advertise on standard error unless they are told not to. With --quiet, warnings would not be counted.
docs: export NO_MKDOCS_2_WARNING = 1
docs: setup
	$(BIN)/mkdocs build --strict

# What the peers need is installed when it is asked for; PyStan in an environment of its own, as it needs an old setuptools, and if it can be.
bench: setup
	@test -e .venv-stan/.installed || { $(PYTHON) -m venv .venv-stan && \
	  .venv-stan/bin/python -m pip install -q --disable-pip-version-check pystan numpy 'setuptools<81' && touch .venv-stan/.installed; } || \
	  echo "PyStan cannot be installed here: the arena goes without Stan."
	@$(BIN)/python -c "import nutpie" 2>/dev/null || $(PIP) -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/arena/arena.py

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vcmc needs Python 3.11 or newer; got " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	@if command -v uv >/dev/null 2>&1; then \
	  echo "setting up $(VENV) with uv …"; \
	  uv venv -q --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV) && \
	  uv pip install -q --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else \
	  echo "setting up $(VENV) with pip (a minute or two) …"; \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
	fi
	@touch $@

constraints:
	@{ echo '# The versions that vcmc is tested with. Renewed with `make constraints`, which needs uv.'; \
	   uv pip compile -q --universal --extra dev --extra bench --python-version 3.11 --no-annotate --no-header \
	     --no-emit-index-url --upgrade pyproject.toml; } > constraints.new && mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) .venv-stan .cache demo site
