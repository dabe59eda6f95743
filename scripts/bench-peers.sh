#!/usr/bin/env bash
# Installs the programs that `make bench` compares with, as far as they are available: DPDK, Open
# vSwitch, n2n, tinc, Open MPI and UCX as Debian packages, and vhost-device-vsock, which is built
# into the target folder. A program that cannot be installed is reported, and its rows are left
# out.
#   usage: scripts/bench-peers.sh [-y]
#   -y             installs without a question; without a terminal there is no question either
#   SKIP_PEERS=1   installs nothing
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
self=bench-peers
. scripts/packages.sh

target=${CARGO_TARGET_DIR:-target}
# dpdk-dev has testpmd, which is generator and switch. The names of the drivers that testpmd needs
# contain DPDK's ABI version: they are read from the dependencies of dpdk.
packages=(dpdk-dev librte-net-virtio librte-net-vhost librte-mempool-ring openvswitch-switch-dpdk n2n
    tinc openmpi-bin libopenmpi-dev ucx-utils)
services=(openvswitch-switch n2n tinc)
vsock=vhost-device-vsock
vsock_version=0.3.0

[ -z "${SKIP_PEERS:-}" ] || exit 0
assume_yes=''
case ${1:-} in
'') ;;
-y) assume_yes=yes ;;
*) report "unknown option $1; expected -y" >&2 && exit 2 ;;
esac

# Prints librte-net-virtio23 for librte-net-virtio, with the version of this Debian.
full_name() {
    case $1 in
    librte-*) apt-cache depends dpdk 2>/dev/null | sed -n "s/.*: \\($1-\\?[0-9]\\+\\)\$/\\1/p" | head -n 1 ;;
    *) echo "$1" ;;
    esac
}

debian_packages() {
    local missing=() present=() package service
    for package in "${packages[@]}"; do
        package=$(full_name "$package")
        [ -z "$package" ] || is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    report "Debian packages to install for bench: ${missing[*]}"
    confirm "install them?" || return 0
    for service in "${services[@]}"; do
        ! is_installed "$service" || present+=("$service")
    done
    refresh_lists
    for package in "${missing[@]}"; do
        apt_install "$package" || report "$package cannot be installed: its rows are left out"
    done
    for service in "${services[@]}"; do
        [[ " ${present[*]-} " == *" $service "* ]] || ! is_installed "$service" ||
            stop_service "$service"
    done
}

vsock_daemon() {
    [ ! -x "$target/peers/bin/$vsock" ] || return 0
    report "building $vsock $vsock_version into $target/peers (some minutes, once)"
    CARGO_TARGET_DIR="$target/peers/build" nice cargo install --quiet --locked \
        --root "$target/peers" --version "$vsock_version" "$vsock" ||
        report "$vsock cannot be built: its rows are left out"
}

debian_packages
vsock_daemon
exit 0
