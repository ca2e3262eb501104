# SPDX-License-Identifier: Apache-2.0
# Environments are made as needed, under .lab (lab/env/environment.py); nothing else is installed.

PYTHON ?= python3
LAB := $(abspath $(or $(REUSE_GUARD_LAB),.lab))
VLLM_PYTHON := $(LAB)/venv/bin/python
RELEASES ?= $(shell $(PYTHON) -c "from vllm_reuse_guard.releases import TESTED; print(*TESTED)")
IN_TREE_RELEASES ?= $(RELEASES)
RELEASE ?= 0.32.0
# Releases that count as the release that they patch (vllm_reuse_guard/releases.py).
PATCH_RELEASES := 0.27.1
UNIT_TESTS := tests/unit tests/repository tests/tools
PYTEST_ARGS ?=
LIVE_RELEASES ?=

export PRE_COMMIT_HOME ?= $(LAB)/pre-commit

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab lab-release test test-all fresh-results check-table table probes bench profiles answers test-vision test-unit test-unit-all test-contract test-patch-releases test-in-tree test-live test-live-short test-without-patches lint docs reference new-release demo serve shell clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

test-unit: ## Tests without vLLM, on the default Python (seconds)
	@python=$$($(PYTHON) -m lab.env.environment unit); \
	$$python -m pytest $(UNIT_TESTS) $(PYTEST_ARGS)

test-unit-all: ## The same on every supported Python found here
	@pythons=$$($(PYTHON) -m lab.env.environment unit-all); \
	for python in $$pythons; do \
		echo "== unit tests on $$($$python --version)"; \
		$$python -m pytest $(UNIT_TESTS) $(PYTEST_ARGS); \
	done

test-contract: lab ## Tests against the code of each tested vLLM release
	@$(VLLM_PYTHON) -m lab.checks.contract $(RELEASES) --pytest="$(PYTEST_ARGS)"

test-in-tree: lab ## The same with the guard in the tree of each release, and no plugin
	@$(VLLM_PYTHON) -m lab.checks.contract $(IN_TREE_RELEASES) --in-tree --pytest="$(PYTEST_ARGS)"

test-patch-releases: ## Contract tests on a patch release, 0.27.1
	@$(PYTHON) -m lab.env.environment lab --releases $(PATCH_RELEASES) > /dev/null
	@$(VLLM_PYTHON) -m lab.checks.contract $(PATCH_RELEASES) --pytest="$(PYTEST_ARGS)"

test-live: lab ## Tests with real vLLM servers (LIVE_RELEASES="0.27.0 0.32.0" for some releases)
	@echo "== tests/live on $(or $(LIVE_RELEASES),every release)"
	@$(VLLM_PYTHON) -m lab.checks.live --releases "$(LIVE_RELEASES)" $(PYTEST_ARGS)

test-live-short: lab ## What `make test` runs of them: two releases, without the tests marked full_matrix
	@echo "== tests/live on 0.27.0 and 0.32.0"
	@$(VLLM_PYTHON) -m lab.checks.live --releases "0.27.0 0.32.0" -m "not full_matrix" $(PYTEST_ARGS)

test-vision: ## Tests with a real model that takes images (a second environment of 6 GB)
	@python=$$($(PYTHON) -m lab.env.environment vision); \
	echo "== tests/vision"; \
	PYTHONPATH=$(CURDIR) $$python -m pytest tests/vision $(PYTEST_ARGS)

test: ## The tests that show that the product works
	@begin=$$SECONDS; times=; \
	for stage in lab test-unit test-contract "test-in-tree IN_TREE_RELEASES=0.33.0" \
		test-live-short; do \
		at=$$SECONDS; eval "$(MAKE) --no-print-directory $$stage"; \
		times+="$${stage%% *}: $$((SECONDS - at)) s"$$'\n'; \
	done; \
	printf '== make test passed\n%sin all: %s s\n' "$$times" "$$((SECONDS - begin))"

test-all: fresh-results test-unit-all test-contract test-patch-releases test-in-tree test-live test-vision check-table ## All tests

test-without-patches: lab ## Take each patch out and see its tests fail (half an hour)
	@$(VLLM_PYTHON) -m lab.checks.without_patch

fresh-results:
	@rm -f $(LAB)/endpoints.json

check-table: ## Fail if docs/features/endpoints.md is not what the last tests found
	@$(PYTHON) -m lab.pages.results --check

table: ## Put what the last tests found into docs/features/endpoints.md
	@$(PYTHON) -m lab.pages.results --write

probes: lab ## Probe plain and guarded servers, and put the tables into docs/probes
	@$(VLLM_PYTHON) -m lab.pages.probes

bench: lab ## Measure what the guard costs and saves, into docs/benchmarks (minutes, a quiet machine)
	@PYTHONPATH=$(LAB)/releases/0.32.0 $(VLLM_PYTHON) -m benchmarks

profiles: lab ## See where the time to first token goes, into docs/benchmarks (two minutes)
	@PYTHONPATH=$(LAB)/releases/0.32.0 $(VLLM_PYTHON) -m benchmarks.profiles

answers: lab ## Ask 200 prompts with reuse and without, into docs/benchmarks (half an hour)
	@PYTHONPATH=$(LAB)/releases/0.32.0 $(VLLM_PYTHON) -m benchmarks.same_answers

new-release: ## Try the guard on an untested vLLM release: make new-release V=0.34.0 (minutes)
	@$(PYTHON) -m lab.releases.new_release $(V)

lint: ## All checks of .pre-commit-config.yaml
	@python=$$($(PYTHON) -m lab.env.environment lint); \
	$$python -m pre_commit run --all-files $(if $(CI),--show-diff-on-failure)

docs: ## Build the site of the docs into .lab/site; fail on a bad link or a stale page
	@python=$$($(PYTHON) -m lab.env.environment docs); \
	$$python -m lab.pages.reference --check; \
	NO_MKDOCS_2_WARNING=1 $$python -m mkdocs build --strict --clean --site-dir $(LAB)/site

reference: ## Write the pages of settings and patches from the code
	@python=$$($(PYTHON) -m lab.env.environment docs); \
	$$python -m lab.pages.reference --write

demo: lab-release ## Show a real prefill and decode pair with the guard in both
	@$(VLLM_PYTHON) -m lab.demo

serve: lab-release ## Start a guarded pair and leave it running until Ctrl-C
	@$(VLLM_PYTHON) -m lab.demo --serve

shell: lab-release ## A shell with the lab's `vllm` and `vllm-reuse-guard` (RELEASE=0.27.0 for another release)
	@echo "vllm serve smollm2 starts a server on port 8000; exit leaves"
	@LAB_RELEASE=$(RELEASE) REUSE_GUARD_LAB=$(LAB) PYTHONPATH=$(LAB)/releases/$(RELEASE) \
		PATH="$(CURDIR)/lab/shell/bin:$(LAB)/venv/bin:$$PATH" PS1='(lab) \w\$$ ' bash --norc

lab: ## Install vLLM's packages and unpack each tested release (7 GB in .lab, once per checkout)
	@$(PYTHON) -m lab.env.environment lab > /dev/null

lab-release:
	@$(PYTHON) -m lab.env.environment lab --releases $(RELEASE) > /dev/null

clean: ## Remove this checkout's environments and caches (not the downloads)
	rm -rf .lab build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
