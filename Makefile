# What people run: `make demo` and `make test`. Both install what they lack.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)
OUT := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help demo test bench sim fuzz sanitize lint setup build clean-guests

help:
	@echo 'make demo    two real guests talk through causewayd, and processes by messages'
	@echo 'make test    lints and all tests, real guests among them'
	@echo 'make bench   rates and delays beside peers and the floor; BENCH="--quick --only stream"'
	@echo 'make fuzz    hostile input for every door, an hour; FUZZ="--target NAME --seconds N --jobs J"'
	@echo 'make sanitize  tests under the address and thread sanitizers'
	@echo 'make sim     random worlds of guests, each from a seed; SIM="--seeds 100000"'
	@echo 'make lint    formatting, clippy, licences'

setup:
	@scripts/setup.sh

# The same packages as vm/src/build.rs asks for, so that nothing is built twice.
build: setup
	cargo build --release -p causeway-daemon -p causeway-cli -p causeway-vm -p causeway-myriexpress \
	    -p causeway-fi

demo: build
	@CAUSEWAY_BIN_DIR='$(abspath $(OUT))/release' '$(OUT)/release/causeway-demo' $(DEMO)

bench: build
	@scripts/bench-peers.sh
	cargo build --release -p causeway-bench -p causeway-myriexpress -p causeway-fi
	@'$(OUT)/release/causeway-bench' $(BENCH)

fuzz: setup
	@scripts/fuzz.sh $(FUZZ)

sanitize: setup
	@scripts/sanitize.sh $(SANITIZE)

sim: setup
	cargo build --release -p causeway-sim
	@'$(OUT)/release/causeway-sim' $(or $(SIM),--seeds 10000)

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/licences.sh

test: lint build
	@scripts/mpi.sh
	cargo test --workspace --locked --no-fail-fast

# The downloaded kernel and the initramfs; the next run makes them anew.
clean-guests:
	rm -rf '$(OUT)/vm'
