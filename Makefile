# Each target is a few commands that anyone could type. The first use makes .venv and installs
# mlxops there, built from this checkout.

PYTHON ?= python3
VENV = .venv
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
SOURCES = pyproject.toml setup.py tools/embed_shaders.py \
          $(wildcard python/mlxops/*.py* python/mlxops/*/*.py shaders/* shaders/ptx/* csrc/*.[ch] csrc/*/*.[ch])

# Options for the programs: make demo ARGS='--tokens 20 --prompt "Name three rivers."'
ARGS =

.PHONY: demo test test-installed test-simulated test-all mutations bench docs lint format lib clean

demo: $(VENV)/installed
	$(VENV)/bin/python examples/generate.py $(ARGS)

# On Linux x86-64 the suite runs a second time with the Metal device, on a simulator; and qemu runs
# the kernels for other processors. The PTX of the CUDA device is made anew and compared, and the
# shaders are compiled for every kind of GPU.
SIMULATED = $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m))

test: test-installed $(if $(SIMULATED),test-simulated)

test-installed: $(VENV)/installed $(VENV)/peers $(if $(SIMULATED),$(VENV)/simulator $(VENV)/emulator)
	$(VENV)/bin/python -m pytest $(ARGS)

test-simulated: $(VENV)/installed $(VENV)/peers $(VENV)/simulator
	MLXOPS_TEST_BUILD=simulated $(VENV)/bin/python -m pytest $(ARGS)

# Breaks the shaders and the Metal device in many ways: the tests must see each.
mutations: $(VENV)/installed $(VENV)/simulator
	$(VENV)/bin/python tests/metal_device/mutations.py

test-all: test mutations

bench: $(VENV)/installed
	$(VENV)/bin/python -m mlxops bench $(ARGS)
	$(VENV)/bin/python benchmarks/overhead.py

# The reference of the Python API, from its docstrings: build/docs/index.html.
docs: $(VENV)/installed
	$(PIP) 'pdoc>=15'
	$(VENV)/bin/python -m pdoc --no-show-source --docformat numpy --output-directory build/docs \
	    mlxops mlxops.layers mlxops.testing

lint: $(VENV)/installed-lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(C_FILES)

format: $(VENV)/installed-lint
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(C_FILES)

# (The simulator's small programs are not formatted: what is expected of them names their lines.)
C_FILES = $(shell find benchmarks csrc shaders tests tools \( -name '*.[chm]' -o -name '*.metal' -o -name '*.cuh' \) -not -path '*/bad/*' -not -path '*/good/*')

$(VENV)/made:
	@sh tools/check_machine.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/made $(SOURCES)
	@sh tools/check_machine.sh $(PYTHON)
	rm -rf build/lib build/lib.*
	$(PIP) '.[test]'
	touch $@

# What the tests compare with, where it can be had: their tests are skipped elsewhere.
$(VENV)/peers: $(VENV)/installed
	-$(PIP) --only-binary :all: libgguf
	-$(PIP) --only-binary :all: 'mlx[cpu]'
	$(if $(SIMULATED),-$(PIP) --only-binary :all: -r tests/cuda/nvrtc.txt)
	touch $@

$(VENV)/simulator: $(VENV)/made
	@sh tools/install_test_tools.sh simulator
	touch $@

# Other processors, where they can be had: their tests are skipped elsewhere.
$(VENV)/emulator: $(VENV)/made
	-@sh tools/install_test_tools.sh emulator && touch $@

$(VENV)/installed-lint: $(VENV)/installed
	$(PIP) '.[test,lint]'
	touch $@

# The C core as a library, for programs without Python: include csrc/mlxops.h and link with
# build/libmlxops.a -pthread -lm, on Linux also -ldl.
CORE = $(wildcard csrc/*.c csrc/ops/*.c csrc/cpu/*.c $(if $(filter Linux,$(shell uname -s)),csrc/cuda/*.c))
CORE_OBJECTS = $(CORE:%.c=build/core/%.o) build/core/shaders.o
CORE_FLAGS = -std=c11 -fPIC -D_GNU_SOURCE -O3 -ffp-contract=off -Wall -Wextra -Icsrc

lib: build/libmlxops.a

build/libmlxops.a: $(CORE_OBJECTS)
	rm -f $@
	$(AR) rcs $@ $^

build/core/%.o: %.c $(wildcard csrc/*.h csrc/*/*.h shaders/*.h)
	@mkdir -p $(@D)
	$(CC) $(CORE_FLAGS) $(CFLAGS) -c $< -o $@

build/core/shaders.c: tools/embed_shaders.py $(wildcard shaders/* shaders/ptx/*)
	@mkdir -p $(@D)
	$(PYTHON) tools/embed_shaders.py shaders $@

build/core/shaders.o: build/core/shaders.c
	$(CC) $(CORE_FLAGS) $(CFLAGS) -c $< -o $@

clean:
	rm -rf $(VENV) build
