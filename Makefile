# make demo         run the demonstration on built-in data
# make test         run the tests, without the slow ones: a few minutes on two cores
# make test-all     run all tests
# make lint         check style, types and imports
# make docs         build the documentation into site/
# make bench        compare vcmc with its alternatives: an hour or two; writes benchmarks/RESULTS.md,
#                   results.json beside it, and the figures of the README
# make setup        create .venv with everything above, with uv if it is installed, else with pip
# make constraints  renew the pinned versions in constraints.txt; needs uv
# make clean        remove what the other targets have made
#
# Every target sets up what it needs. Another Python: make PYTHON=python3.12 ...
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP = $(shell command -v uv >/dev/null 2>&1 \
  && echo uv pip install -q --compile-bytecode --python $(BIN)/python \
  || echo $(BIN)/python -m pip install -q --disable-pip-version-check)

# Tests run in several processes, whose BLAS threads would compete for the cores.
test test-all: export OPENBLAS_NUM_THREADS = 1

# Imports are three times as fast with bytecode, which pip compiles unless this is set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all browser lint docs bench setup constraints clean

demo: setup
	$(BIN)/vcmc demo

test: setup
	$(BIN)/python -m pytest -m "not slow"

test-all: setup browser
	$(BIN)/python -m pytest

# The tests of the report page in a browser are slow ones, and are skipped without Chromium.
APT := timeout 300 apt-get -qq
CHROMIUM := chromium chromium-driver
browser:
	@{ command -v chromium && command -v chromedriver; } >/dev/null 2>&1 || \
	 { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 && \
	   echo "installing Chromium …" && \
	   { $(APT) install -y --no-install-recommends $(CHROMIUM) || \
	     { $(APT) update && $(APT) install -y --no-install-recommends $(CHROMIUM); }; \
	   } >/dev/null 2>&1; } || \
	 echo "No Chromium: the report page is not tested in a browser." \
	   "Try: apt-get install $(CHROMIUM)"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The theme's authors advertise on standard error otherwise. --quiet would not count warnings.
docs: export NO_MKDOCS_2_WARNING = 1
docs: setup
	$(BIN)/mkdocs build --strict

# Installs the alternatives first. PyStan needs an old setuptools, and so its own environment.
PIP_STAN = .venv-stan/bin/python -m pip install -q --disable-pip-version-check
bench: setup
	@test -e .venv-stan/.installed || \
	  { $(PYTHON) -m venv .venv-stan && $(PIP_STAN) pystan numpy 'setuptools<81' && \
	    touch .venv-stan/.installed; } || \
	  echo "PyStan cannot be installed: the comparison runs without Stan."
	@$(BIN)/python -c "import gpboost, nutpie, statsmodels" 2>/dev/null || $(PIP) -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/arena/arena.py

setup: $(VENV)/.installed

OLD_PYTHON = "vcmc needs Python 3.11 or newer; got " + sys.version.split()[0] + \
  ". Try: make PYTHON=python3.12 ..."
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and $(OLD_PYTHON))'
	@if command -v uv >/dev/null 2>&1; then \
	  echo "setting up $(VENV) with uv …"; \
	  uv venv -q --allow-existing \
	    --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV); \
	else \
	  echo "setting up $(VENV) with pip (a minute or two) …"; \
	  $(PYTHON) -m venv $(VENV); \
	fi
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

constraints:
	@{ echo '# Versions that vcmc is tested with. Renew them: `make constraints`, with uv.'; \
	   uv pip compile -q --universal --extra dev --extra bench --python-version 3.11 \
	     --no-annotate --no-header --no-emit-index-url --upgrade pyproject.toml; \
	 } > constraints.new && mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) .venv-stan .cache demo site
