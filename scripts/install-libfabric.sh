#!/bin/sh
# Installs the libfabric provider where libfabric's core looks for providers, and its manual page.
# usage: install-libfabric.sh PREFIX [DIRECTORY OF libcauseway-fi.so]
# Debian's libfabric searches /usr/lib/x86_64-linux-gnu/libfabric; for another PREFIX, set
# FI_PROVIDER_PATH=PREFIX/lib/libfabric.
set -eu
prefix=${1:?usage: install-libfabric.sh PREFIX [DIRECTORY]}
root=$(cd "$(dirname "$0")/.." && pwd)
built=${2:-$root/target/release}
[ -e "$built/libcauseway-fi.so" ] || {
    echo "install-libfabric: $built/libcauseway-fi.so is missing: run cargo build --release -p causeway-fi" >&2
    exit 1
}
mkdir -p "$prefix/lib/libfabric" "$prefix/share/man/man7"
install -m 755 "$built/libcauseway-fi.so" "$prefix/lib/libfabric/"
install -m 644 "$root/clients/libfabric/fi_causeway.7" "$prefix/share/man/man7/"
