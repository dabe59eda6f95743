#!/usr/bin/env bash
# Checks that the workspace compiles with the `rust-version` of Cargo.toml. Installs that toolchain
# with rustup where it is missing; where it is not available, reports this and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
# Time limit of the download, in seconds.
DOWNLOAD_MAX=300

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! command -v rustup >/dev/null; then
    echo "check-oldest: not checked with Rust $oldest: rustup is not installed"
    exit 0
fi
if ! rustc "+$oldest" --version >/dev/null 2>&1 &&
    ! timeout "$DOWNLOAD_MAX" rustup toolchain install "$oldest" --profile minimal \
        --no-self-update >/dev/null 2>&1; then
    echo "check-oldest: not checked with Rust $oldest: it is not installed and cannot be downloaded"
    exit 0
fi
cargo "+$oldest" check --workspace --locked
echo "check-oldest: ok: $(rustc "+$oldest" --version)"
