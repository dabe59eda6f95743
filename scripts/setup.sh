#!/usr/bin/env bash
# Gets a Debian machine ready to build, test and show Causeway: checks that Rust
# is new enough, and installs the Debian packages that are missing (with sudo
# where we are not root). Says what it does; does nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

# make, gcc, libc6-dev: build; g++: libFuzzer; qemu, busybox: guests; iproute2, util-linux:
# namespaces, taps and dropped privileges; xz-utils: compressed kernel modules; libfabric:
# its headers and fi_info, against which the provider is tested; openmpi, hpcc, netpipe: MPI over
# it; slurm, munge: start MPI programs; tshark: reads our captures; openvswitch-switch, ethtool:
# the far end of a VXLAN link.
packages=(make gcc g++ libc6-dev qemu-system-x86 busybox-static iproute2 util-linux xz-utils
    libfabric-dev libfabric-bin openmpi-bin libopenmpi-dev hpcc netpipe-openmpi slurmd slurmctld
    slurm-client slurm-wlm-basic-plugins munge tshark openvswitch-switch ethtool)
# Those of them that bring a service of that name.
services=(openvswitch-switch slurmd slurmctld munge)

die() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# True when version $1 is at least version $2.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

check_rust() {
    local wanted found command
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if command -v rustup >/dev/null; then
        command='rustup update stable && rustup default stable'
    else
        command="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
    fi
    found=$(rustc --version 2>/dev/null | cut -d ' ' -f 2 | cut -d - -f 1 || true)
    [ -n "$found" ] || die "Rust is missing (at least $wanted). Run this, then try again:" "  $command"
    command -v cargo >/dev/null || die "cargo is missing. Run this, then try again:" "  $command"
    at_least "$found" "$wanted" ||
        die "Rust $found is too old (at least $wanted). Run this, then try again:" "  $command"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "this needs root, and there is no sudo. Run this as root, then try again:" "  $*"
    fi
}

# Package lists that are missing or a day old may name packages that are gone.
fresh_lists() {
    [ -z "${updated:-}" ] || return 0
    updated=yes
    [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' -mtime -1 -print -quit 2>/dev/null)" ] ||
        return 0
    echo "setup: apt-get update"
    as_root apt-get update -qq
}

install_packages() {
    local missing=() package
    for package in "${packages[@]}"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "setup: installing ${missing[*]}"
    fresh_lists
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    for package in "${services[@]}"; do
        [[ " ${missing[*]} " != *" $package "* ]] || rest "$package"
    done
}

# Tests run instances of their own; the service that a package brings is put back to rest.
rest() {
    [ -d /run/systemd/system ] || return 0
    echo "setup: stopping and disabling the $1 service that its package started"
    as_root systemctl disable --now "$1" >/dev/null 2>&1 || true
}

# The guests' kernel is downloaded as a package later on, by any user.
check_kernel_known() {
    [ ! -d "${CARGO_TARGET_DIR:-target}/vm/kernel" ] || return 0
    fresh_lists
    apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1 ||
        die "apt knows no package linux-image-cloud-amd64: this needs Debian 12 or later on amd64"
}

command -v apt-get >/dev/null || die "this needs Debian 12 or later"
check_rust
install_packages
check_kernel_known
