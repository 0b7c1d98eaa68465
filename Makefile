# Short commands over meson. `make demo` and `make test` set up everything that
# they need on Debian 12 and 13, for an ordinary user with sudo and for root.

BUILD ?= build
PREFIX ?= /usr/local
CLOCHE = $(BUILD)/bin/cloche
SCRIPTS = scripts
# words for the e2e runner: names, or parts of names
T ?=
FUZZ_SECONDS ?= 60
STRESS_SECONDS ?= 60
SOAK_SECONDS ?= 3600

.PHONY: all setup build demo test e2e bench fuzz stress soak check-kvm install clean help

all: build

help:
	@echo "make demo        set up, build, and show one session from start to end"
	@echo "make test        set up, build, and run every test"
	@echo "make e2e T=NAME  only the tests in a virtual machine whose name has NAME in it"
	@echo "make bench       the measurements of docs/testing.md"
	@echo "make fuzz FUZZ_SECONDS=60   every fuzz target, that long each"
	@echo "make stress STRESS_SECONDS=60, make soak SOAK_SECONDS=3600   races and long runs"
	@echo "make check-kvm   what this machine's KVM can do"
	@echo "make install PREFIX=/usr/local DESTDIR="

setup:
	@$(SCRIPTS)/setup.sh build run test

$(BUILD)/build.ninja:
	@$(SCRIPTS)/setup.sh build
	meson setup $(BUILD) --prefix $(PREFIX)

build: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

demo:
	@$(SCRIPTS)/setup.sh build run
	@$(MAKE) --no-print-directory build
	@$(SCRIPTS)/demo.sh $(CLOCHE)

test: setup
	@$(MAKE) --no-print-directory build
	@python3 $(SCRIPTS)/run-tests.py --build $(BUILD) $(T)

e2e: setup
	@$(MAKE) --no-print-directory build
	@python3 tests/e2e/run.py --build $(BUILD) $(T)

bench: setup
	@$(SCRIPTS)/setup.sh bench
	@$(MAKE) --no-print-directory build
	@$(SCRIPTS)/run-all.sh bench $(BUILD)

fuzz:
	@$(SCRIPTS)/setup.sh build check
	@$(SCRIPTS)/fuzz.sh $(FUZZ_SECONDS) $(T)

stress: setup
	@$(MAKE) --no-print-directory build
	@$(SCRIPTS)/run-all.sh stress $(BUILD) $(STRESS_SECONDS)

soak: setup
	@$(MAKE) --no-print-directory build
	@$(SCRIPTS)/run-all.sh soak $(BUILD) $(SOAK_SECONDS)

check-kvm: setup
	@$(MAKE) --no-print-directory build
	@$(SCRIPTS)/check-kvm.sh $(CLOCHE)

install: $(BUILD)/build.ninja
	meson configure $(BUILD) -Dprefix=$(PREFIX)
	meson install -C $(BUILD)

clean:
	rm -rf $(BUILD) build-clang build-asan build-fuzz
