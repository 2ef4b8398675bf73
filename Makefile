# SPDX-License-Identifier: GPL-2.0-only
# `make demo` and `make test` do all of their own set-up; `make` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
OUT := out
SEEDS ?= 5
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The newest 6.12 headers change their name with every security update.
HEADERS_612 = $(shell apt-cache search --names-only '^linux-headers-6\.12\.[0-9]+.*-amd64$$' 2>/dev/null | \
	awk '{print $$1}' | grep -vE 'cloud|rt' | sort -V | tail -n 1)
BUILD_PACKAGES = gcc libc6-dev make kmod linux-headers-amd64
TEST_PACKAGES = $(HEADERS_612) qemu-system-x86 busybox-static iproute2 iperf3 tcpdump sparse clang dkms \
	$(LAB_PACKAGES) $(CROSS_PACKAGES)
# The sanitizers of whatever clang this release has.
CLANG_RT = $(shell apt-cache depends clang 2>/dev/null | sed -n 's/.*clang-\([0-9]*\)$$/libclang-rt-\1-dev/p' | head -n 1)
CROSS_PACKAGES = $(CLANG_RT) gcc-i686-linux-gnu libc6-dev-i386-cross gcc-s390x-linux-gnu \
	libc6-dev-s390x-cross qemu-user-static binutils
LAB_PACKAGES = flex bison bc patch xz-utils libelf-dev util-linux
BOARD = docs/board
KDIR ?= $(firstword $(wildcard /lib/modules/$(shell uname -r)/build) \
	$(lastword $(sort $(wildcard /usr/src/linux-headers-*-amd64))))

CORE_SOURCES := $(wildcard kmod/ndm_*.h) kmod/generated/ndm_contract.h kmod/generated/ndm_tables.h \
	src/ndm_tcp/core.c src/ndm_tcp/core_build.py setup.py pyproject.toml

.PHONY: help setup packages test-packages demo test board lint shipped generated check-generated \
	notebooks clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(STAMPS)/core ## Python environment in .venv, with the C extension

packages: ## system packages of the demo (apt when root, else says what to install)
	@$(call need,$(BUILD_PACKAGES) $(PYTHON_PACKAGES))

test-packages: packages ## system packages of the tests
	@apt-get --version >/dev/null 2>&1 && [ -z "$(HEADERS_612)" ] && [ "$$(id -u)" = 0 ] && apt-get update -qq || true
	@$(MAKE) --no-print-directory install-test-packages

install-test-packages:
	@$(call need,$(TEST_PACKAGES))

# Python's headers and venv come with the interpreter or as packages of their own.
PYTHON_PACKAGES = $(shell $(PYTHON) -c 'import ensurepip, sysconfig, pathlib as p; \
	(p.Path(sysconfig.get_path("include")) / "Python.h").stat()' 2>/dev/null || \
	echo python3 python3-venv python3-dev)

define need
missing=$$(for p in $(1); do \
	dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
missing=$$(echo $$missing); \
if [ -z "$$missing" ]; then exit 0; fi; \
if ! command -v apt-get >/dev/null; then \
	echo "make: please install what your system calls: $$missing" >&2; exit 1; fi; \
if [ "$$(id -u)" != 0 ]; then \
	echo "make: run first: sudo apt-get install --no-install-recommends $$missing" >&2; exit 1; fi; \
echo "installing system packages: $$missing"; \
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	apt-get install -qq -y --no-install-recommends $$missing; } >$(STAMPS)-apt.log 2>&1 || \
	{ tail -n 20 $(STAMPS)-apt.log >&2; rm -f $(STAMPS)-apt.log; exit 1; }; \
rm -f $(STAMPS)-apt.log
endef

$(STAMPS)/venv: constraints.txt pyproject.toml | packages
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11; set PYTHON=" >&2; exit 1; }
	@mkdir -p $(STAMPS)
	@echo "installing Python packages into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install -q -e '.[train,notebooks,dev]' 2>&1 | \
		{ grep -v '^WARNING: Location' || true; }
	@touch $@

$(STAMPS)/core: $(STAMPS)/venv $(CORE_SOURCES)
	@echo "compiling the kernel's headers into the Python extension"
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install -q --no-deps -e . 2>&1 | \
		{ grep -v '^WARNING: Location' || true; }
	@touch $@

demo: setup ## traces -> dataset -> trained network -> C header -> ndm_tcp.ko -> checks -> summary
	@rm -rf $(OUT)/demo && mkdir -p $(OUT)/demo
	$(BIN)/ndm dataset build datasets/traces -o $(OUT)/demo/data
	$(BIN)/ndm train --data $(OUT)/demo/data -o $(OUT)/demo/run
	@cp -r kmod $(OUT)/demo/kmod
	$(BIN)/ndm export $(OUT)/demo/run -o $(OUT)/demo/kmod/generated
	$(MAKE) -s -C $(OUT)/demo/kmod KDIR=$(KDIR)
	$(BIN)/ndm check --kmod $(OUT)/demo/kmod
	@$(call notebook,$(OUT)/demo/data,$(OUT)/demo/run,$(OUT)/demo/model.ipynb)
	@$(BIN)/python -m ndm_tcp.export.summary $(OUT)/demo

test: setup test-packages ## every test, a kernel boot in QEMU included
	$(BIN)/pytest

board: setup test-packages ## every scenario with every algorithm of the kernel; takes hours
	$(BIN)/ndm lab board published --cc all,ndm_tcp,ceiling --seeds $(SEEDS) -o $(OUT)/board/published
	$(BIN)/ndm lab board ccbench --cc all,ndm_tcp --seeds $(SEEDS) -o $(OUT)/board/ccbench
	@mkdir -p $(BOARD)
	@for suite in published ccbench; do for kind in md csv; do \
		cp $(OUT)/board/$$suite/board.$$kind $(BOARD)/$$suite.$$kind; done; done
	@echo "$(BOARD)/*.md and *.csv, plots in $(OUT)/board/*/board.html"

lint: setup ## ruff and mypy alone
	$(BIN)/pytest -q tests/test_style.py

shipped: setup ## make the committed network anew: kmod/generated from datasets/traces
	rm -rf $(OUT)/shipped
	$(BIN)/ndm dataset build datasets/traces -o $(OUT)/shipped/data
	$(BIN)/ndm train --data $(OUT)/shipped/data -o $(OUT)/shipped/run
	$(BIN)/ndm export $(OUT)/shipped/run
	$(BIN)/ndm check
	cp $(OUT)/shipped/run/MODEL_CARD.md docs/MODEL_CARD.md
	@$(call notebook,$(OUT)/shipped/data,$(OUT)/shipped/run,notebooks/model.ipynb)

generated: setup ## rewrite kmod/generated from the contract and ndm_model.json
	$(BIN)/ndm check --update

check-generated: setup ## are they what their sources generate?
	$(BIN)/ndm check

define notebook
echo "running notebooks/model.py"; \
NDM_DATA=$(CURDIR)/$(1) NDM_RUN=$(CURDIR)/$(2) \
	$(BIN)/python notebooks/execute.py notebooks/model.py $(3) \
		>$(OUT)/notebook.log 2>&1 || { tail -n 20 $(OUT)/notebook.log >&2; exit 1; }
endef

notebooks: shipped ## run the notebooks on the shipped network

clean: ## remove what was built here
	rm -rf $(OUT) $(VENV) $(STAMPS) build src/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
	find src -name '_core*.so' -delete
