#!/usr/bin/env bash
# Checks that the tree compiles for processors other than x86-64.
#
# If the standard library of another target is installed, the tree is checked for that target. In
# every case, the crates with code for x86-64 are checked on this host with that code compiled out,
# which compiles the portable code in its place.
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${CARGO_TARGET_DIR:-target}
TARGET=${CROSS_TARGET:-aarch64-unknown-linux-gnu}
# Packages with such code, their own or that of a crate that they import; the tool has none.
PACKAGES=(-p causeway-daemon -p causeway-myriexpress -p causeway-fi)

# A C compiler for the target builds the assembly of the cryptography.
libdir=$(rustc --print target-libdir --target "$TARGET")
compiler=${TARGET%%-*}-linux-gnu-gcc
if ! ls "$libdir"/libstd-*.rlib >/dev/null 2>&1; then
    echo "check-portable: not checked for $TARGET: its standard library is not installed (rustup target add $TARGET)"
elif ! command -v "$compiler" >/dev/null; then
    echo "check-portable: not checked for $TARGET: there is no $compiler (apt-get install gcc-${TARGET%%-*}-linux-gnu)"
else
    env "CC_${TARGET//-/_}=$compiler" cargo check --locked --target "$TARGET" -p causeway-cli "${PACKAGES[@]}"
fi

# A copy of the sources in which no processor is x86-64.
copy=$OUT/portable
rm -rf "$copy"
# Cargo takes a crate of the copy for that of the same name here, in the same target folder, while the
# copy exists.
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard -- '*.rs' '*.toml' '*.c' '*.map' 'crates/web/page/*' Cargo.lock |
    { grep -zv '^target/' || true; } | xargs -0 cp --parents -t "$copy" --
mapfile -t files < <(grep -rlE 'target_arch = "x86_64"' "$copy" --include='*.rs')
sed -i 's/target_arch = "x86_64"/target_arch = "s390x"/g' "${files[@]}"
CARGO_TARGET_DIR=$(realpath "$OUT") cargo check --locked --manifest-path "$copy/Cargo.toml" \
    "${PACKAGES[@]}"
echo "check-portable: ok: ${#files[@]} files without their code for x86-64"
