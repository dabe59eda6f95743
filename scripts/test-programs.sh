#!/usr/bin/env bash
# Collects the programs and libraries that guest tests start, from the build of the tests.
#   usage: scripts/test-programs.sh FOLDER
# CAUSEWAY_BIN_DIR=FOLDER then saves a release build of the same programs (see vm/src/build.rs).
set -euo pipefail
[ $# -eq 1 ] || { echo "test-programs: expected a folder" >&2 && exit 2; }
cd "$(dirname "$0")/.."
built=$(realpath "${CARGO_TARGET_DIR:-target}/debug")
mkdir -p "$1"

# link NAME FILE: makes FOLDER/NAME a hard link, because programs load libraries from their own
# folder.
link() {
    [ -e "$built/$2" ] || { echo "test-programs: $built/$2 is missing: build the tests first" >&2 && exit 1; }
    ln -f "$built/$2" "$folder/$1" 2>/dev/null || cp -f "$built/$2" "$folder/$1"
}

folder=$1
for program in causewayd causeway causeway-holder causeway-directory causeway-mx causeway-adapter-check; do
    link "$program" "$program"
done
# Cargo leaves libraries of the C interface where their tests find them.
link libmyriexpress.so deps/libmyriexpress.so
link libcauseway_provider.so deps/libcauseway_provider.so
link libcauseway-fi.so deps/libcauseway_provider.so
