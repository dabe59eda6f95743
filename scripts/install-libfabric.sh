#!/bin/sh
# Installs the libfabric provider where libfabric's core looks for providers, and its manual page.
# usage: install-libfabric.sh PREFIX [DIRECTORY OF libcauseway-fi.so]
# Debian's libfabric looks in /usr/lib/x86_64-linux-gnu/libfabric; any other is found by
# FI_PROVIDER_PATH=PREFIX/lib/libfabric.
set -eu
prefix=${1:?usage: install-libfabric.sh PREFIX [DIRECTORY]}
root=$(cd "$(dirname "$0")/.." && pwd)
built=${2:-$root/target/release}
[ -e "$built/libcauseway-fi.so" ] || {
    echo "install-libfabric: $built/libcauseway-fi.so is not there: run cargo build --release -p causeway-fi" >&2
    exit 1
}
mkdir -p "$prefix/lib/libfabric" "$prefix/share/man/man7"
install -m 755 "$built/libcauseway-fi.so" "$prefix/lib/libfabric/"
install -m 644 "$root/clients/libfabric/fi_causeway.7" "$prefix/share/man/man7/"
