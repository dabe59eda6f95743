#!/usr/bin/env bash
# Generates manual pages and shell completions with the built programs.
#   usage: scripts/make-pages.sh BUILT FOLDER
# Writes man1, man5 and man8, mx (section 1, of causeway-mx), and bash, zsh and fish.
set -euo pipefail
[ $# -eq 2 ] || { echo "make-pages: expected two folders: of the programs, and of the pages" >&2 && exit 2; }
built=$1 pages=$2
# Nothing of this machine's daemon is part of the pages.
unset CAUSEWAY_CONTROL CAUSEWAY_CONFIG CAUSEWAY_ETCD CAUSEWAY_SITE CAUSEWAY_HOST

rm -rf "$pages"
mkdir -p "$pages"/{man1,man5,man8,mx,bash,zsh,fish}
"$built/causeway" man "$pages/man1" >/dev/null
"$built/causewayd" --man=causeway.toml >"$pages/man5/causeway.toml.5"
"$built/causewayd" --man >"$pages/man8/causewayd.8"
"$built/causeway-holder" --man >"$pages/man8/causeway-holder.8"
"$built/causeway-directory" --man >"$pages/man8/causeway-directory.8"
"$built/causeway-mx" man "$pages/mx"
for shell in bash zsh fish; do
    case $shell in
    bash) names=(causeway causewayd) ;;
    zsh) names=(_causeway _causewayd) ;;
    fish) names=(causeway.fish causewayd.fish) ;;
    esac
    "$built/causeway" completion $shell >"$pages/$shell/${names[0]}"
    "$built/causewayd" --completion $shell >"$pages/$shell/${names[1]}"
done
