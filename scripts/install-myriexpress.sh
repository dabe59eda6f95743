#!/bin/sh
# Installs libmyriexpress for builds with --with-mx=PREFIX: headers, library, alias, pkg-config,
# and causeway-mx where it was built.
# usage: install-myriexpress.sh PREFIX [DIRECTORY OF libmyriexpress.so]
set -eu
prefix=${1:?usage: install-myriexpress.sh PREFIX [DIRECTORY]}
root=$(cd "$(dirname "$0")/.." && pwd)
built=${2:-$root/target/release}
here=$root/clients/myriexpress
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
mkdir -p "$prefix/include/mx_internals" "$prefix/lib/pkgconfig"
install -m 644 "$here"/include/*.h "$prefix/include/"
install -m 644 "$here"/include/mx_internals/*.h "$prefix/include/mx_internals/"
install -m 755 "$built/libmyriexpress.so" "$prefix/lib/"
ln -sfn libmyriexpress.so "$prefix/lib/libopen-mx.so.0"
if [ -e "$built/causeway-mx" ]; then
    mkdir -p "$prefix/bin"
    install -m 755 "$built/causeway-mx" "$prefix/bin/"
fi
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/myriexpress.pc.in" \
    >"$prefix/lib/pkgconfig/myriexpress.pc"
