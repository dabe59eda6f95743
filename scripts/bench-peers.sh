#!/usr/bin/env bash
# Gets what `make bench` is measured beside, as far as it can be had: DPDK, Open
# vSwitch, n2n, tinc, Open MPI and UCX as Debian packages, vhost-device-vsock as a crate built
# into the target folder. Says what it does. A peer that cannot be had is left out with a
# word; its rows then stand without it. SKIP_PEERS=1 installs nothing.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

target=${CARGO_TARGET_DIR:-target}
# dpdk-dev has testpmd, which is generator and switch; the drivers that it needs
# are named by DPDK's ABI version, so they are taken from what dpdk recommends.
packages=(dpdk-dev librte-net-virtio librte-net-vhost librte-mempool-ring openvswitch-switch-dpdk n2n tinc openmpi-bin libopenmpi-dev ucx-utils)
vsock=vhost-device-vsock
vsock_version=0.3.0

[ -z "${SKIP_PEERS:-}" ] || exit 0

say() {
    printf 'bench-peers: %s\n' "$*"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        return 1
    fi
}

# librte-net-virtio becomes librte-net-virtio23, or whatever this Debian has.
full_name() {
    case $1 in
    librte-*) apt-cache depends dpdk 2>/dev/null | sed -n "s/.*: \\($1-\\?[0-9]\\+\\)\$/\\1/p" | head -n 1 ;;
    *) echo "$1" ;;
    esac
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Some packages start a service of the system's own. It is no part of the bench,
# which runs its own instance in a folder of its own: put it back to rest.
rest() {
    [ -d /run/systemd/system ] || return 0
    say "stopping and disabling the $1 service that the package started"
    as_root systemctl disable --now "$1" >/dev/null 2>&1
}

debian_packages() {
    local package service had=
    for service in openvswitch-switch n2n tinc; do
        ! installed "$service" || had="$had $service "
    done
    for package in "${packages[@]}"; do
        package=$(full_name "$package")
        [ -n "$package" ] || continue
        installed "$package" && continue
        say "installing $package (Debian)"
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq -y --no-install-recommends "$package" >/dev/null ||
            say "$package cannot be installed: its rows are left out"
    done
    for service in openvswitch-switch n2n tinc; do
        [[ $had == *" $service "* ]] || ! installed "$service" || rest "$service"
    done
}

vsock_daemon() {
    [ ! -x "$target/peers/bin/$vsock" ] || return 0
    say "building $vsock $vsock_version into $target/peers (some minutes, once)"
    CARGO_TARGET_DIR="$target/peers/build" nice cargo install --quiet --locked \
        --root "$target/peers" --version "$vsock_version" "$vsock" ||
        say "$vsock cannot be built: its rows are left out"
}

debian_packages
vsock_daemon
exit 0
