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
# Where networks are trained and guests run: local, or ray for the Ray cluster that is running.
ENGINE ?= local
# Of the shipped network.
SEED = 8
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# pip compiles nothing here (--no-compile). Where Python must not keep what it compiles, which images
# of containers forbid it, every import of torch compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE

# The newest 6.12 headers change their name with every security update; their kernel is to be had, too.
HEADERS_612 = $(shell apt-cache search --names-only '^linux-(headers|image)-6\.12\.[0-9]+.*-amd64$$' 2>/dev/null | \
	awk '{print $$1}' | grep -vE 'cloud|rt' | sed -E 's/^linux-(headers|image)-//' | sort -V | uniq -d | tail -n 1 | \
	sed 's/^/linux-headers-/')
BUILD_PACKAGES = gcc libc6-dev make kmod linux-headers-amd64
LAB_PACKAGES = flex bison bc patch xz-utils util-linux iproute2 iperf3
TEST_PACKAGES = $(HEADERS_612) chromium qemu-system-x86 busybox-static tcpdump sparse clang dkms libelf-dev \
	$(BPF_PACKAGES) $(CLANGS) \
	$(LAB_PACKAGES) $(CROSS_PACKAGES)
# The BPF form of the module: for its loader.
BPF_PACKAGES = libbpf-dev
# tests/bpf/test_load.py: besides the release's own clang, those whose objects Linux once refused.
CLANGS = $(shell apt-cache search --names-only '^clang-(16|19)$$' 2>/dev/null | awk '{print $$1}')
# The sanitizers of whatever clang this release has.
CLANG_RT = $(shell apt-cache depends clang 2>/dev/null | sed -n 's/.*clang-\([0-9]*\)$$/libclang-rt-\1-dev/p' | head -n 1)
CROSS_PACKAGES = $(CLANG_RT) gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf gcc-i686-linux-gnu libc6-dev-i386-cross gcc-s390x-linux-gnu \
	libc6-dev-s390x-cross qemu-user-static binutils
BOARD = docs/board
ROUNDS = $(addprefix datasets/lab-rounds/,core jitter lan lan-short access overtaking harsh)
# Parts of the weight in training: the traces', then those of ROUNDS.
SHARES = 0.03,0.6605,0.028,0.036,0.0455,0.1,0.04,0.06
NOTEBOOKS = training_run policy quantisation your_own_trace your_path closed_loop
ABLATION = $(OUT)/ablation
KDIR ?= $(firstword $(wildcard /lib/modules/$(shell uname -r)/build) \
	$(lastword $(sort $(wildcard /usr/src/linux-headers-*-amd64))))

CORE_SOURCES := $(wildcard kmod/ndm_*.h datasets/native/*) kmod/generated/ndm_contract.h kmod/generated/ndm_tables.h \
	src/ndm_tcp/core.c src/ndm_tcp/core_build.py setup.py pyproject.toml

.PHONY: help setup docs pictures packages test-packages install-test-packages demo-packages demo test test-long test-debug test-ray fuzz \
	bench-datasets board worth lint shipped shipped-run generated check-generated notebooks ablation deb clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(STAMPS)/tools ## Python environment in .venv, with the C extension and the tools of the tests

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

PIP = PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install -q
# Python compiles what it imports; most of what is installed never is.
PIP_QUIET = 2>&1 | { grep -v '^WARNING: Location' || true; }
# Where torch comes from, such as "--index-url URL" of the builds without CUDA (README).
PIP_TORCH ?=

# What extras of pyproject.toml ask for, and not the project itself, into a file for pip.
define requirements
$(PYTHON) -c 'import sys, tomllib; \
	t = tomllib.load(open("pyproject.toml", "rb")); p = t["project"]; \
	wanted = t["build-system"]["requires"] + p["dependencies"]; \
	wanted += [r for e in sys.argv[1:] for r in p["optional-dependencies"][e]]; \
	print(*wanted, sep="\n")' $(1) >$@.txt
endef

$(STAMPS)/venv: constraints.txt pyproject.toml | $(if $(HAS_PACKAGES),,packages)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11; set PYTHON=" >&2; exit 1; }
	@mkdir -p $(STAMPS)
	@echo "installing Python packages into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(if $(PIP_TORCH),$(PIP) --no-compile --no-deps $(PIP_TORCH) torch)
	@$(call requirements,train)
	@$(PIP) --no-compile -r $@.txt $(PIP_QUIET)
	@touch $@

$(STAMPS)/core: $(STAMPS)/venv $(CORE_SOURCES)
	@echo "compiling the kernel's headers into the Python extension"
	@$(PIP) --no-deps --no-build-isolation -e . $(PIP_QUIET)
	@touch $@

$(STAMPS)/tools: $(STAMPS)/core
	@echo "installing the tools of tests and notebooks into $(VENV)"
	@$(call requirements,notebooks dev docs)
	@$(PIP) --no-compile -r $@.txt $(PIP_QUIET)
	@touch $@

DEMO = $(OUT)/demo
comma := ,
DONE = $(DEMO)/done
DEMO_SCENARIOS = published/c-dumbbell-loss-1.toml,published/d-star-loss-1.toml
RIVALS = reno,cubic,bbr
ALL_FOUR = $(RIVALS),ndm_tcp
TRACES := $(shell find datasets/traces -type f)
ROUND_FILES := $(wildcard $(addsuffix /*,$(ROUNDS)))
export DEMO_START := $(or $(DEMO_START),$(shell date +%s))

# The figures are README's.
define DEMO_SAYS
On 2 cores: about 6 minutes the first time, 2 minutes after, seconds when nothing changed.
Disk: up to 5 GB. Memory: up to 3 GB. The lab's kernel is kept outside the checkout, in ~/.cache.
pip's own torch may bring CUDA, gigabytes that nothing here uses; PIP_TORCH names another: README.md.
Logs: $(DEMO)/log/
endef
export DEMO_SAYS

demo: ## traces -> trained network -> C header -> ndm_tcp.ko -> checks -> closed loop in the lab
	@echo "$$DEMO_SAYS"
	@$(MAKE) --no-print-directory demo-packages
	@# The kernel takes longest, so it is the first to start.
	@$(MAKE) --no-print-directory -j 3 HAS_PACKAGES=1 $(DONE)/kernel $(DONE)/module $(DONE)/check $(DONE)/board \
		$(DONE)/predict $(DONE)/adapt
	@$(BIN)/python -m ndm_tcp.export.report.summary $(DEMO)

demo-packages:
	@$(call need,$(BUILD_PACKAGES) $(PYTHON_PACKAGES) $(LAB_PACKAGES))

# of a title and commands: says when they end and how long they took; what they print is logged
define step
@mkdir -p $(DEMO)/log $(DONE)
@log=$(DEMO)/log/$(@F).log; if { $(2); } >$$log 2>&1 </dev/null; then \
	at=$$(($$(date +%s) - DEMO_START)); \
	printf '[%d:%02d] %s (%d s)\n' $$((at / 60)) $$((at % 60)) "$(1)" $$SECONDS; touch $@; \
else tail -n 20 $$log >&2; echo "make: failed: $(1); all of it: $$log" >&2; exit 1; fi
endef

# Needs no Python package, so it is built while these are installed.
$(DONE)/kernel: $(wildcard lab/uml/* lab/uml/watch/*.c lab/fixed_cwnd/*.c) lab/guest/uml_build.py
	$(call step,the lab's kernel,PYTHONPATH=src $(PYTHON) -m ndm_tcp.cli lab build)

# The labels of the shipped network: estimates made anew may have changed since.
$(DONE)/data: $(STAMPS)/core $(wildcard datasets/*.py datasets/*/*.py datasets/path-models/*) $(TRACES)
	$(call step,dataset of the traces,rm -rf $(DEMO)/data && \
		$(BIN)/ndm dataset build datasets/traces --paths datasets/path-models -o $(DEMO)/data)

$(DONE)/run: $(DONE)/data $(wildcard training/*.py training/*/*.py) $(ROUND_FILES)
	$(call step,training,rm -rf $(DEMO)/run && \
		$(BIN)/ndm train --data $(DEMO)/data $(ROUNDS) --shares $(SHARES) --seed $(SEED) -o $(DEMO)/run)

$(DONE)/export: $(DONE)/run $(wildcard export/*.py export/*/*.py kmod/*.[ch] kmod/Kbuild kmod/Makefile)
	$(call step,integers and headers,rm -rf $(DEMO)/kmod && cp -r kmod $(DEMO)/kmod && \
		$(BIN)/ndm export $(DEMO)/run -o $(DEMO)/kmod/generated)

# By another name, so that `make -n` does not run it.
KBUILD := $(MAKE)
$(DONE)/module: $(DONE)/export
	$(call step,module for a stock kernel,$(KBUILD) -s -C $(DEMO)/kmod KDIR=$(KDIR))

$(DONE)/check: $(DONE)/export
	$(call step,checks,$(BIN)/ndm check --kmod $(DEMO)/kmod)

$(DONE)/rivals: $(DONE)/kernel $(STAMPS)/core $(wildcard lab/*.py lab/*/*.py lab/scenarios/published/*)
	$(call step,the lab: $(RIVALS),rm -rf $(DEMO)/board && \
		$(BIN)/ndm lab board $(DEMO_SCENARIOS) --cc $(RIVALS) --seeds 1 -o $(DEMO)/board)

$(DONE)/board: $(DONE)/rivals $(DONE)/export
	$(call step,the lab: the network just trained,$(BIN)/ndm lab board $(DEMO_SCENARIOS) --cc $(ALL_FOUR) --seeds 1 \
			--kmod $(DEMO)/kmod -o $(DEMO)/board --picture $(DEMO)/board.png >$(DEMO)/board.txt)

# Two real captures: one of M-Lab's, of the Internet, and one of this project's, over a Linux host.
DEMO_ADAPTED = datasets/traces/cubic-01-clean
DEMO_CAPTURES = $(wildcard datasets/traces/third_party/mlab_ndt_bulk*) $(DEMO_ADAPTED)

$(DONE)/predict: $(DONE)/rivals $(wildcard paths/*.py)
	$(call step,the paths of two captures: estimate$(comma) replay$(comma) predict,rm -rf $(DEMO)/paths && \
		$(BIN)/ndm path estimate $(DEMO_CAPTURES) -o $(DEMO)/paths && \
		$(BIN)/ndm path predict $(DEMO)/paths --draws 3 >$(DEMO)/paths.txt)

# Exit code 1 and a report: the advice is not to use the network, which is a result, too.
$(DONE)/adapt: $(DONE)/rivals $(wildcard paths/*.py src/ndm_tcp/adapt/*.py training/*.py export/*.py export/*/*.py kmod/*.[ch]) $(ROUND_FILES)
	$(call step,the shipped network adapted to one of these paths,rm -rf $(DEMO)/adapt && \
		{ $(BIN)/ndm adapt $(DEMO_ADAPTED) -o $(DEMO)/adapt --draws 1 --iterations 1 --seconds 5 --guard "" \
			>$(DEMO)/adapt.txt || { [ $$? = 1 ] && [ -f $(DEMO)/adapt/adapt.json ]; }; })

# The longest files begin first (tests/conftest.py), so that none is waited for at the end.
PYTEST = $(BIN)/pytest -n $$(nproc) --dist loadfile --no-loadscope-reorder

test: setup test-packages ## the tests, a kernel boot in QEMU included; README has the time
	@# Where it cannot be built, the tests that need it say why they skip.
	-$(BIN)/ndm lab build
	$(PYTEST) -m "not long" --durations=20

test-long: setup test-packages ## the same on more seeds, kernels, mutants; the Debian package; before a release
	@$(call need,$(DEB_PACKAGES) $(ARM64_PACKAGES) $(SYSTEM_PACKAGES))
	$(BIN)/ndm lab build
	$(PYTEST) -m long --durations=20

test-debug: setup test-packages ## the module under KASAN, UBSAN, lockdep, kmemleak; builds a kernel once
	$(BIN)/ndm lab build --debug
	$(BIN)/pytest tests/kmod/test_debug.py tests/kmod/test_debug_swaps.py

test-ray: setup ## datasets and runs of the lab on a Ray cluster of two workers; installs ray
	@$(PIP) --no-build-isolation -e '.[ray]' $(PIP_QUIET)
	$(BIN)/pytest tests/test_ray.py

FUZZ_SECONDS ?= 600
fuzz: setup test-packages ## readers of captures and logs, in C under sanitizers and in Python; of blobs
	@$(PIP) --no-build-isolation -e '.[fuzz]' $(PIP_QUIET)
	@mkdir -p $(OUT)/fuzz/native $(OUT)/fuzz/readers
	clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I. \
		tests/fuzz/fuzz_native.c datasets/native/*.c -lm -o $(OUT)/fuzz/fuzz_native
	$(BIN)/python -m tests.fuzz.corpus $(OUT)/fuzz/seeds
	$(OUT)/fuzz/fuzz_native $(OUT)/fuzz/native $(OUT)/fuzz/seeds -max_len=8000 -timeout=10 \
		-max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=$(OUT)/fuzz/
	clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I. \
		tests/fuzz/fuzz_blob.c -o $(OUT)/fuzz/fuzz_blob
	@mkdir -p $(OUT)/fuzz/blob
	$(BIN)/python -m tests.fuzz.corpus $(OUT)/fuzz/blobs blob
	$(OUT)/fuzz/fuzz_blob $(OUT)/fuzz/blob $(OUT)/fuzz/blobs -max_len=20000 -timeout=10 \
		-max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=$(OUT)/fuzz/
	$(BIN)/python -m tests.fuzz.fuzz_readers $(OUT)/fuzz/readers -max_len=40000 -timeout=20 \
		-rss_limit_mb=3000 -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(OUT)/fuzz/

BENCH_PACKAGES = tshark tcptrace
bench-datasets: setup ## readers beside scapy, dpkt, tshark, tcptrace; memory on a capture of 5 GB
	@$(call need,$(BENCH_PACKAGES))
	@$(PIP) --no-build-isolation -e '.[bench]' $(PIP_QUIET)
	$(BIN)/python -m tests.bench.bench_capture --folder $(OUT)
	$(BIN)/python -m tests.bench.bench_text

worth: setup test-packages ## what the network and each rule of the module are worth: docs/worth.md, docs/rules.md, hours; ENGINE=ray
	@$(PIP) --no-build-isolation -e '.[bench]' $(PIP_QUIET)
	@test -d $(OUT)/shipped/data || $(MAKE) --no-print-directory shipped-run
	@test -d $(OUT)/worth/many || $(BIN)/ndm train --data $(OUT)/shipped/data $(ROUNDS) --shares $(SHARES) \
		--seeds 5 --engine $(ENGINE) -o $(OUT)/worth/many
	$(BIN)/ndm lab build
	$(BIN)/python -m ndm_tcp.worth.experiment $(OUT)/worth/many --data $(OUT)/shipped/data $(ROUNDS) \
		-o $(OUT)/worth --pages docs --engine $(ENGINE)

board: setup test-packages ## every scenario with every algorithm of the kernel; takes hours; ENGINE=ray
	$(BIN)/ndm lab board --engine $(ENGINE) published --cc all,ndm_tcp,ceiling --seeds $(SEEDS) -o $(OUT)/board/published
	$(BIN)/ndm lab board --engine $(ENGINE) ccbench --cc all,ndm_tcp --seeds $(SEEDS) -o $(OUT)/board/ccbench
	$(BIN)/ndm lab board --engine $(ENGINE) fairness --cc all,ndm_tcp --seeds $(SEEDS) -o $(OUT)/board/fairness
	$(BIN)/ndm lab board --engine $(ENGINE) access --cc $(ALL_FOUR) --seeds 1 -o $(OUT)/board/access
	$(BIN)/ndm lab board --engine $(ENGINE) sealed --cc $(ALL_FOUR) --seeds 1 -o $(OUT)/board/sealed
	@mkdir -p $(BOARD)
	@for suite in published ccbench fairness access sealed; do for kind in md csv; do \
		cp $(OUT)/board/$$suite/board.$$kind $(BOARD)/$$suite.$$kind; done; done
	@echo "$(BOARD)/*.md and *.csv, plots in $(OUT)/board/*/board.html"

PICTURED = cubic bbr ndm_tcp
pictures: setup ## the pictures of the README, of one path in the lab and of docs/board
	for cc in $(PICTURED); do $(BIN)/ndm lab run published/c-dumbbell-loss-1.toml --cc $$cc --seed 1 \
		--light --force -o $(OUT)/pictures/$$cc; done
	$(BIN)/ndm lab plot $(addprefix $(OUT)/pictures/,$(PICTURED)) -o docs/pictures/closed_loop.svg
	$(BIN)/ndm lab plot docs/board/published.csv --cc $(ALL_FOUR) -o docs/pictures/board.svg

docs: setup ## the pages as a site, in out/site
	$(BIN)/python docs/cli.py
	$(BIN)/python docs/tutorial.py
	$(BIN)/python docs/decisions/index.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

lint: setup ## ruff and mypy alone
	$(BIN)/pytest -q tests/test_style.py

shipped-run: setup ## train the committed network anew, into out/shipped
	rm -rf $(OUT)/shipped
	$(BIN)/ndm dataset build datasets/traces --paths datasets/path-models -o $(OUT)/shipped/data
	$(BIN)/ndm train --data $(OUT)/shipped/data $(ROUNDS) --shares $(SHARES) --seed $(SEED) \
		-o $(OUT)/shipped/seed-$(SEED)
	ln -s seed-$(SEED) $(OUT)/shipped/run
	@# What ndm select found of the whole population, for the card.
	cp docs/selection.json $(OUT)/shipped/
	$(BIN)/ndm export $(OUT)/shipped/seed-$(SEED)

shipped: shipped-run ## make the committed network anew: kmod/generated from datasets/traces
	$(BIN)/ndm export $(OUT)/shipped/seed-$(SEED) --shipped --measure
	$(BIN)/ndm check
	$(BIN)/ndm lab scenarios sealed
	cat $(OUT)/shipped/run/MODEL_CARD.md docs/model_card_tail.md >docs/MODEL_CARD.md
	@$(call run-notebooks,$(OUT)/shipped,notebooks,$(NOTEBOOKS))

generated: $(STAMPS)/venv ## rewrite kmod/generated from the contract and ndm_model.json
	$(BIN)/python -m ndm_tcp.export.integers.contract_c
	@$(MAKE) --no-print-directory setup
	$(BIN)/ndm check --update

check-generated: setup ## are they what their sources generate?
	$(BIN)/ndm check

# of a folder with data and run, into a folder, these
define run-notebooks
echo "running notebooks: $(3)"; \
NDM_DATA=$$(echo $(1)/data $(ROUNDS) | tr ' ' :) NDM_RUN=$(1)/run \
	$(BIN)/python notebooks/execute.py $(2) $(patsubst %,notebooks/%.py,$(3)) \
		>$(OUT)/notebook.log 2>&1 || { tail -n 20 $(OUT)/notebook.log >&2; exit 1; }
endef

notebooks: setup ## run the notebooks on the shipped network (make shipped-run leaves it)
	@test -f $(OUT)/shipped/run/export.json || $(MAKE) --no-print-directory shipped-run
	@test -d $(DEMO)/adapt || echo "your_path shows no adapted network; make demo leaves one"
	@$(call run-notebooks,$(OUT)/shipped,notebooks,$(NOTEBOOKS))

# Inputs held at 0, of each variant; every one is a population of these seeds.
MASK_full =
MASK_no-delay = 7,8
MASK_no-entropy = 4
MASK_no-floor = 10
MASK_no-memory = $(shell $(BIN)/python -c \
	"from ndm_tcp.contract import MEANS; print(*(i.index for i in MEANS), sep=',')")
ABLATION_SEEDS = 1 2 3 4 5
ABLATED = full no-delay no-entropy no-floor no-memory
ABLATION_BOARD = $(BIN)/ndm lab board validation --seeds 1 --engine $(ENGINE)

# The stem is a variant.
$(ABLATION)/run/%/trained: $(ROUNDS)
	$(BIN)/ndm train --data $(OUT)/shipped/data $(ROUNDS) --shares $(SHARES) --mask "$(MASK_$*)" \
		--seeds $(words $(ABLATION_SEEDS)) --engine $(ENGINE) -o $(@D)
	@touch $@

$(ABLATION)/offline.json: $(ROUNDS)
	$(BIN)/python -m ndm_tcp.training.experiments.ablation --data $(ROUNDS) -o $(@D) --epochs 16 \
		--seeds $(words $(ABLATION_SEEDS))

ablation: setup test-packages ## what inputs, size and training are worth: docs/ablation.md, over an hour; ENGINE=ray
	@test -f $(OUT)/shipped/run/export.json || $(MAKE) --no-print-directory shipped-run
	OMP_NUM_THREADS=1 $(MAKE) --no-print-directory $(ABLATED:%=$(ABLATION)/run/%/trained) \
		$(ABLATION)/offline.json
	for seed in $(ABLATION_SEEDS); do $(BIN)/python -m ndm_tcp.training.experiments.ablation \
		--untrained $(ABLATION)/run/untrained/seed-$$seed --seed $$seed; done
	$(BIN)/ndm lab build
	$(ABLATION_BOARD) --cc reno,cubic,bbr -o $(ABLATION)/board/rivals >/dev/null
	$(ABLATION_BOARD) --cc ndm_tcp -o $(ABLATION)/board/shipped >/dev/null
	@for variant in $(ABLATED) untrained; do for seed in $(ABLATION_SEEDS); do \
		name=$$variant-$$seed; copy=$(ABLATION)/kmod/$$name; \
		rm -rf $$copy $(ABLATION)/board/$$name; mkdir -p $(ABLATION)/kmod && cp -r kmod $$copy; \
		$(BIN)/ndm export $(ABLATION)/run/$$variant/seed-$$seed -o $$copy/generated \
			--even-if-worse >/dev/null || \
			{ echo "ablation: $$name cannot be exported, so not run"; continue; }; \
		echo "ablation: $$name on the validation paths"; \
		$(ABLATION_BOARD) --cc ndm_tcp --kmod $$copy -o $(ABLATION)/board/$$name >/dev/null; \
		done; done
	NDM_RUN=$(OUT)/shipped/run $(BIN)/python notebooks/ablation_page.py $(ABLATION)

# BPF in a kernel for arm64 (tests/bpf/arm64.py).
ARM64_PACKAGES = qemu-system-arm
# A Debian with systemd (tests/kernel/system.py).
SYSTEM_PACKAGES = debootstrap
DEB_PACKAGES = dpkg-dev debhelper dh-dkms lintian
DEB_VERSION = $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' kmod/dkms.conf)
DEB_OUT = $(CURDIR)/$(OUT)/deb
# Without what a build left.
MODULE_SOURCES = $(filter-out %.mod.c,$(wildcard $(addprefix kmod/,Kbuild Makefile README.md dkms.conf *.[ch] \
	generated/*.h generated/*.json)))
deb: ## the module's source as a Debian package for DKMS, checked by lintian: out/deb
	@$(call need,$(DEB_PACKAGES))
	@build=$$(mktemp -d) && trap 'rm -rf "$$build"' EXIT && mkdir "$$build/ndm-tcp" && \
	cp --parents -t "$$build/ndm-tcp" $(MODULE_SOURCES) && \
	cp -r packaging/debian "$$build/ndm-tcp/debian" && cd "$$build/ndm-tcp" && \
	sed -i '1s/(.*)/($(DEB_VERSION))/' debian/changelog && \
	sed -i 's/^PACKAGE_VERSION=.*/PACKAGE_VERSION="$(DEB_VERSION)"/' kmod/dkms.conf && \
	{ dpkg-buildpackage -b -us -uc >../log 2>&1 || { tail -n 20 ../log >&2; exit 1; }; } && \
	lintian --fail-on error,warning ../*.changes && \
	mkdir -p $(DEB_OUT) && cp ../*.deb $(DEB_OUT)/
	@ls $(DEB_OUT)/*_$(DEB_VERSION)_all.deb

clean: ## remove what was built here
	rm -rf $(OUT) $(VENV) $(STAMPS) build src/*.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
	find src -name '_core*.so' -delete
