#!/usr/bin/env bash
# Installs the files of components, as packaging/files lists them.
#   usage: scripts/install-files.sh [OPTION...] COMPONENT...
#   --prefix DIR   (default /usr/local)
#   --destdir DIR  folder before every path, for packages
#   --lib DIR      folder of libraries, relative to the prefix (default lib)
#   --zsh DIR      folder of zsh's completions, relative to the prefix
#   --built DIR    folder of the built programs and libraries (default target/release)
#   --pages DIR    folder of the generated pages, see make-pages.sh (default target/pages)
#   --list         prints the sources instead
#   --remove       removes the files, except those of the operator
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

prefix=/usr/local destdir='' lib=lib zsh=share/zsh/site-functions action=install
built=${CARGO_TARGET_DIR:-target}/release pages=${CARGO_TARGET_DIR:-target}/pages
components=()

die() {
    echo "install-files: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --destdir | --lib | --zsh | --built | --pages)
        [ $# -ge 2 ] || die "$1 needs a folder"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    --list | --remove) action=${1#--} ;;
    -*) die "unknown option $1" ;;
    *) components+=("$1") ;;
    esac
    shift
done
[[ $prefix == /* ]] || die "--prefix $prefix: expected an absolute path"
[ ${#components[@]} -gt 0 ] || die "name a component of packaging/files"
version=${CAUSEWAY_VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}

# Copies a text file with the places of this installation.
install_text() {
    local from=$1 to=$2
    sed -e "s|@PREFIX@|$prefix|g; s|@LIB@|$lib|g; s|@VERSION@|$version|g; s|=\(+\?\)/usr/bin/cause|=\1$prefix/bin/cause|" \
        "$from" | install -m 644 /dev/stdin "$to"
}

# Installs one file under its final path.
install_file() {
    local mode=$1 from=$2 to=$3 is_operators=$4
    mkdir -p "$(dirname "$to")"
    case $mode in
    link) ln -sfn "$from" "$to" ;;
    text) install_text "$from" "$to" ;;
    *)
        if [ -n "$is_operators" ] && [ -e "$to" ]; then
            echo "install-files: $to exists and is left as it is"
        else
            install -m "$mode" "$from" "$to"
        fi
        ;;
    esac
}

# Handles one line of the list.
handle() {
    local mode=$1 source=$2 destination=$3 is_operators='' from to
    case $source in
    built/*) source=$built/${source#built/} ;;
    pages/*) source=$pages/${source#pages/} ;;
    esac
    case $destination in
    /*) is_operators=yes ;;
    LIB/*) destination=$prefix/$lib/${destination#LIB/} ;;
    ZSH/*) destination=$prefix/$zsh/${destination#ZSH/} ;;
    *) destination=$prefix/$destination ;;
    esac
    local found=("$source")
    # The source of a link is relative to the link.
    [ "$mode" = link ] || mapfile -t found < <(compgen -G "$source" || true)
    [ ${#found[@]} -gt 0 ] || [ "$action" = remove ] || die "$source is missing: run cargo build --release, and scripts/make-pages.sh for pages"
    for from in "${found[@]}"; do
        to=$destdir$destination
        [[ $to != */ ]] || to+=${from##*/}
        case $action in
        install) install_file "$mode" "$from" "$to" "$is_operators" ;;
        list) [ "$mode" = link ] || echo "$from" ;;
        remove) [ -n "$is_operators" ] || rm -f "$to" ;;
        esac
    done
}

for component in "${components[@]}"; do
    lines=0
    while read -r name mode source destination; do
        [ "$name" = "$component" ] || continue
        lines=$((lines + 1))
        handle "$mode" "$source" "$destination"
    done <packaging/files
    [ $lines -gt 0 ] || die "packaging/files has no component $component"
done
