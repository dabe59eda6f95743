#!/usr/bin/env bash
# Builds the documentation as a book in target/book, and checks its links.
#   usage: scripts/docs.sh [--check]
#   --check   checks links, generated pages and examples only: needs no mdBook
# mdBook of the version below is built into target/tools at the first run (some minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
version=0.4.52
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

report() {
    printf 'docs: %s\n' "$*"
}

# Prints the path of mdBook.
mdbook() {
    local program=$target/tools/bin/mdbook
    if [ "$("$program" --version 2>/dev/null)" != "mdbook v$version" ]; then
        report "building mdBook $version into $target/tools" >&2
        CARGO_TARGET_DIR=$target/tools/build cargo install --quiet --locked --root "$target/tools" \
            --no-default-features --features search "mdbook@$version" >&2
        rm -rf "$target/tools/build"
    fi
    echo "$program"
}

case ${1-} in
'' | --check) ;;
*) report "unknown argument $1; expected nothing, or --check" >&2 && exit 2 ;;
esac
cargo test --quiet --locked -p causeway-daemon --test documents
cargo test --quiet --locked -p causeway-cli --bin causeway documents_
[ "${1-}" = --check ] && exit
"$(mdbook)" build --dest-dir "$target/book" docs
report "open file://$target/book/index.html"
