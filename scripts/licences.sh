#!/usr/bin/env bash
# Fails when the licence of a dependency is not in the list of deny.toml. Where cargo-deny is
# installed, checks the other rules of deny.toml too: duplicate versions, sources, and advisories
# where their database can be downloaded or was downloaded before.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

report() {
    printf 'licences: %s\n' "$*"
}

# The list `allow` of deny.toml, as alternatives of a regular expression.
allowed=$(sed -n '/^allow = \[$/,/^\]$/s/^ *"\(.*\)",$/\1/p' deny.toml | paste -sd '|')
[ -n "$allowed" ] || { report "deny.toml has no list of allowed licences" >&2 && exit 1; }

status=0
while IFS='|' read -r package licence; do
    [ -n "$package" ] || continue # between workspace members
    # Each operand of "AND" must have at least one allowed operand of "OR".
    refused=$(printf '%s' "${licence//[()]/}" | sed 's: */ *: OR :g; s/ AND /\n/g' | while read -r choice || [ -n "$choice" ]; do
        printf '%s\n' "$choice" | sed 's/ OR /\n/g' | grep -Eqx "$allowed" || printf '%s' "$choice"
    done)
    if [ -z "$licence" ] || [ -n "$refused" ]; then
        report "$package: '${licence:-none}' is not in the list of deny.toml" >&2
        status=1
    fi
done < <(cargo tree --workspace --locked -e normal,build,dev --prefix none --no-dedupe -f '{p}|{l}' | sort -u)
[ $status -eq 0 ] && report "the licences of all dependencies are allowed"

if ! command -v cargo-deny >/dev/null; then
    report "duplicates, sources and advisories not checked: cargo-deny is not installed (cargo install cargo-deny)"
    exit $status
fi
cargo deny check licenses bans sources || status=1
if cargo deny fetch db 2>/dev/null || cargo deny --offline check advisories >/dev/null 2>&1; then
    cargo deny --offline check advisories || status=1
else
    report "advisories not checked: the database cannot be downloaded"
fi
exit $status
