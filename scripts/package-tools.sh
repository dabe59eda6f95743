#!/usr/bin/env bash
# Installs the program that makes Debian packages, cargo-deb, into target/tools. Does nothing where this
# version is installed. (RPM packages are made by rpmbuild, which the system packages.)
#   usage: scripts/package-tools.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
wanted=(cargo-deb@3.8.0)

for tool in "${wanted[@]}"; do
    name=${tool%@*} version=${tool#*@}
    ! grep -qs "^\"$name $version " "$tools/.crates.toml" || continue
    echo "package-tools: building $name $version into $tools (minutes, once)"
    CARGO_TARGET_DIR="$tools/build" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 nice cargo install --quiet --locked --root "$tools" --version "$version" "$name"
    rm -rf "$tools/build"
done
