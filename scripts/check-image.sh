#!/usr/bin/env bash
# Checks the OCI image: starts causewayd as the image's entry point in the root of the image, and serves
# two frontends of this machine.
#   usage: scripts/check-image.sh ARCHIVE EXAMPLES
#   ARCHIVE    causeway-VERSION-oci.tar of make-image.sh
#   EXAMPLES   folder of the programs vsock-server and vsock-client
# Needs root and umoci. No container engine is used: the process gets namespaces of its own for
# mounts, processes and the network, and the root file system of the image.
set -euo pipefail
[ $# -eq 2 ] || { echo "check-image: expected an archive and a folder" >&2 && exit 2; }
archive=$(realpath "$1") examples=$(realpath "$2")
work=$(mktemp -d "${TMPDIR:-/tmp}/causeway-image.XXXXXX")
daemon='' server=''
trap 'status=$?; finish; exit $status' EXIT

report() {
    echo "check-image: $*"
}

fail() {
    report "FAILED: $*: $(cat "$work/log" 2>/dev/null)" >&2
    exit 1
}

finish() {
    for process in $server $daemon; do
        kill -KILL "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}

if [ "$(id -u)" -ne 0 ] || ! command -v umoci >/dev/null; then
    report "skipped: needs root, and umoci (scripts/setup.sh packages)"
    exit 0
fi
mkdir "$work/oci"
tar -C "$work/oci" -xf "$archive"
grep -q '"org.opencontainers.image.ref.name":"localhost/causeway:[0-9.]*"' "$work/oci/index.json" ||
    fail "the image has no name: $(cat "$work/oci/index.json")"
sed -i 's|"localhost/causeway:[0-9.]*"|"latest"|g' "$work/oci/index.json"
umoci unpack --image "$work/oci:latest" "$work/bundle" 2>"$work/log" || fail "umoci unpack"
root=$work/bundle/rootfs
grep -qz '"args": \[[[:space:]]*"/usr/bin/causewayd"[[:space:]]*\]' "$work/bundle/config.json" ||
    fail "the entry point is not /usr/bin/causewayd"
[ -z "$(find "$root" -name '*.so*')" ] || fail "the image has libraries"

# The first process of the namespaces is the entry point; its end ends all others.
unshare --mount --pid --net --fork --kill-child sh -c '
    mount -t proc proc "$1/proc"
    mount --bind /dev "$1/dev"
    exec chroot "$1" /usr/bin/causewayd
' sh "$root" >"$work/log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
    [ ! -S "$root/run/causeway/vm2-vsock.sock" ] || break
    kill -0 "$daemon" 2>/dev/null || fail "causewayd ended"
    sleep 0.1
done
# The daemon does not answer clients of another process namespace, whose process it cannot identify.
nsenter --target "$(pgrep -P "$daemon")" --mount --pid --root /usr/bin/causeway port list >"$work/ports" ||
    fail "causeway port list"
grep -q '^vm1-vsock' "$work/ports" || fail "the ports of the configuration are missing: $(cat "$work/ports")"
stdbuf -oL "$examples/vsock-server" "$root/run/causeway/vm1-vsock.sock" 7 >"$work/server" 2>&1 &
server=$!
for _ in $(seq 100); do
    ! grep -q listening "$work/server" || break
    sleep 0.1
done
found=$("$examples/vsock-client" "$root/run/causeway/vm2-vsock.sock" 3 7 65536 2>&1) || fail "vsock-client: $found"
[[ $found == *'65536 bytes there and back'* ]] || fail "vsock-client: $found"
report "the image serves two frontends: $found"
