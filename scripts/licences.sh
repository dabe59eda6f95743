#!/usr/bin/env bash
# Fails when a dependency's licence is not among those named here; checks
# advisories too, where cargo-deny is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

# Licences any one of which will do. A package that offers a choice ("OR")
# passes with one of them; one that demands several ("AND") needs them all.
allowed='Apache-2.0|MIT|BSD-2-Clause|BSD-3-Clause|0BSD|ISC|Zlib|Unicode-3.0|Unlicense|Apache-2.0 WITH LLVM-exception'

status=0
while IFS='|' read -r package licence; do
    [ -n "$package" ] || continue # between workspace members
    # Drop what is allowed from every choice; a demand that is left is refused.
    refused=$(printf '%s' "${licence//[()]/}" | sed 's: */ *: OR :g; s/ AND /\n/g' | while read -r choice || [ -n "$choice" ]; do
        printf '%s\n' "$choice" | sed 's/ OR /\n/g' | grep -Eqx "$allowed" || printf '%s' "$choice"
    done)
    if [ -z "$licence" ] || [ -n "$refused" ]; then
        echo "licences: $package: '${licence:-none}' is not among those allowed" >&2
        status=1
    fi
done < <(cargo tree --workspace --locked -e normal,build,dev --prefix none --no-dedupe -f '{p}|{l}' | sort -u)
[ $status -eq 0 ] && echo "licences: all dependencies are under allowed licences"

if command -v cargo-deny >/dev/null; then
    cargo deny check advisories || status=1
else
    echo "licences: advisories not checked: cargo-deny is not installed (cargo install cargo-deny)"
fi
exit $status
