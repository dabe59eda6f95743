#!/usr/bin/env bash
# Prints the packages of crates.io that the built programs and libraries contain, each with its
# licence and the notices of its sources, as their licences require of copies.
#   usage: scripts/third-party.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src

echo "Causeway contains the following packages of crates.io."
cargo tree --locked -p causeway-daemon -p causeway-cli -p causeway-myriexpress -p causeway-fi \
    -e normal --prefix none --no-dedupe -f '{p}|{l}' | grep -v '(/' | sed 's/ (proc-macro)//' | sort -u |
    while IFS='|' read -r package licence; do
        [ -n "$package" ] || continue # between workspace members
        name=${package% v*} version=${package##* v}
        mapfile -t found < <(compgen -G "$sources/*/$name-$version" || true)
        [ ${#found[@]} -gt 0 ] || {
            echo "third-party: the sources of $package are not in $sources: run cargo fetch" >&2
            exit 1
        }
        printf '\n%s\n%s %s\nLicence: %s\n' "$(printf '=%.0s' {1..78})" "$name" "$version" "$licence"
        # The text of the Apache licence, which each Debian system has, is not repeated.
        find "${found[0]}" -maxdepth 1 -type f \( -iname 'LICEN[CS]E*' -o -iname 'COPYRIGHT*' -o \
            -iname 'COPYING*' -o -iname 'NOTICE*' -o -iname 'AUTHORS*' \) ! -iname '*apache*' \
            ! -iname '*boost*' -print0 | sort -z | while IFS= read -r -d '' file; do
            printf '\n--- %s\n\n' "${file##*/}"
            cat "$file"
        done
    done
