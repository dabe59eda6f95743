#!/bin/sh
# Installs the libfabric provider where libfabric's core looks for providers, and its manual page.
# usage: install-libfabric.sh PREFIX [DIRECTORY OF libcauseway-fi.so]
# Debian's libfabric searches /usr/lib/x86_64-linux-gnu/libfabric; for another PREFIX, set
# FI_PROVIDER_PATH=PREFIX/lib/libfabric.
set -eu
prefix=${1:?usage: install-libfabric.sh PREFIX [DIRECTORY]}
root=$(cd "$(dirname "$0")/.." && pwd)
exec "$root/scripts/install-files.sh" --prefix "$prefix" --built "${2:-$root/target/release}" libfabric
