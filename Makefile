# Each target first runs scripts/setup.sh, which installs the Debian packages of the target after a
# question; `YES=-y` skips the question.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)
OUT := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help check doc docs demo test packages guides install bench matrix ssh sim fuzz sanitize lint setup build clean-guests

help:
	@echo 'make check   formatting, clippy and unit tests: no root, no QEMU, minutes'
	@echo 'make test    all lints and all tests, with real guests, MPI and Slurm'
	@echo 'make packages  Debian and RPM packages, an archive with "make install", and an OCI image'
	@echo 'make guides    follows README.md and the guides in fresh Debians that have the packages; GUIDES="docs/guide/qemu.md"'
	@echo 'make install   installs the release build; PREFIX=/usr/local DESTDIR='
	@echo 'make demo    two guests and two processes exchange every kind of traffic; prints tables'
	@echo 'make bench   throughput and latency, compared with other programs; BENCH="--quick --only stream"'
	@echo 'make matrix  RDMA programs in guests of each kernel; MATRIX="--only trixie/verbs --kills 200"'
	@echo 'make ssh     ssh to fresh guests without a network interface, from the host and between them'
	@echo 'make fuzz    fuzz targets, an hour; FUZZ="--target NAME --seconds N --jobs J"'
	@echo 'make sanitize  tests under the address and thread sanitizers'
	@echo 'make sim     random scenarios of guests, each from a seed; SIM="--seeds 100000"'
	@echo 'make lint    formatting, clippy, licences'
	@echo 'make doc     documentation of all crates with private items; a broken link is an error'
	@echo 'make docs    guides and references as a book in target/book; links and examples are checked'
	@echo 'make setup   installs the Debian packages of all targets; for one target: scripts/setup.sh TARGET'

setup:
	@scripts/setup.sh $(YES) all

setup-%:
	@scripts/setup.sh $(YES) $*

# Builds the same packages as vm/src/build.rs, so that no package is built twice.
build: setup-build
	cargo build --release -p causeway-daemon -p causeway-cli -p causeway-etcd -p causeway-vm -p causeway-myriexpress \
	    -p causeway-fi

# The image has a static build, in a folder of its own.
STATIC := $(OUT)/static
STATIC_TARGET := $(shell uname -m)-unknown-linux-gnu
packages: setup-packages build
	@scripts/package-tools.sh
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked -p causeway-daemon -p causeway-etcd \
	    -p causeway-cli --target $(STATIC_TARGET) --target-dir '$(STATIC)'
	@scripts/make-packages.sh deb rpm archive
	@scripts/make-image.sh '$(STATIC)/$(STATIC_TARGET)/release' '$(OUT)/packages'

# Follows README.md and the guides on two fresh Debians with the packages, in containers.
guides: setup-packages setup-demo build
	@scripts/package-tools.sh
	@scripts/check-guides.sh '$(OUT)/release' $(GUIDES)

# Installs what `make build` has built.
PREFIX ?= /usr/local
install:
	@scripts/make-pages.sh '$(OUT)/release' '$(OUT)/pages'
	@scripts/install-files.sh --prefix '$(PREFIX)' --destdir '$(DESTDIR)' daemon mx-tool mx-pages \
	    myriexpress myriexpress-dev libfabric

demo: setup-demo build
	@CAUSEWAY_BIN_DIR='$(abspath $(OUT))/release' '$(OUT)/release/causeway-demo' $(DEMO)

# Results are stored in target/vm/matrix; a second call runs what is missing.
matrix: setup-demo build
	@CAUSEWAY_BIN_DIR='$(abspath $(OUT))/release' '$(OUT)/release/causeway-matrix' $(MATRIX)

# ssh to fresh guests without a network interface, in emulation; the image is made once.
ssh: setup-demo build
	@scripts/ssh-guest.sh '$(OUT)/vm/ssh'
	CAUSEWAY_BIN_DIR='$(abspath $(OUT))/release' cargo test -p causeway-vm --test ssh -- --nocapture

bench: setup-bench build
	@scripts/bench-peers.sh $(YES)
	cargo build --release -p causeway-bench -p causeway-myriexpress -p causeway-fi
	@'$(OUT)/release/causeway-bench' $(BENCH)

fuzz: setup-fuzz
	@scripts/fuzz.sh $(FUZZ)

sanitize: setup-sanitize
	@scripts/sanitize.sh $(SANITIZE)

sim: setup-sim
	cargo build --release -p causeway-sim
	@'$(OUT)/release/causeway-sim' $(or $(SIM),--seeds 10000)

doc: setup-build
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --locked

docs: setup-build
	@scripts/docs.sh

lint: setup-lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/licences.sh

# Checks before each commit; needs neither root nor a service. Runs the unit tests inside the
# sources; `make test` runs those in tests/ directories.
check: setup-check
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --lib --bins --locked --quiet

test: setup-test lint build
	@scripts/mpi.sh
	@scripts/test.sh

# Removes the downloaded kernel and the initramfs; the next run creates them again.
clean-guests:
	rm -rf '$(OUT)/vm'
