#!/bin/sh
# Installs libmyriexpress for builds with --with-mx=PREFIX: headers, library, alias, pkg-config,
# and causeway-mx where it was built.
# usage: install-myriexpress.sh PREFIX [DIRECTORY OF libmyriexpress.so]
set -eu
prefix=${1:?usage: install-myriexpress.sh PREFIX [DIRECTORY]}
root=$(cd "$(dirname "$0")/.." && pwd)
built=${2:-$root/target/release}
"$root/scripts/install-files.sh" --prefix "$prefix" --built "$built" myriexpress myriexpress-dev
[ ! -e "$built/causeway-mx" ] ||
    "$root/scripts/install-files.sh" --prefix "$prefix" --built "$built" mx-tool
