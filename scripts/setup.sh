#!/usr/bin/env bash
# Prepares a Debian machine: checks the Rust version, lists the Debian packages that are missing
# for the given make targets, asks, and installs them (with sudo where the user is not root).
# Does nothing where all packages are installed.
#   usage: scripts/setup.sh [-y] [TARGET...]
#   TARGET   build (default), check, lint, demo, test, packages, bench, fuzz, sanitize, sim, or all
#   -y       installs without a question; without a terminal there is no question either
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
self=setup
. scripts/packages.sh

# Packages by purpose. Every target needs those of `compile`.
compile=(make gcc libc6-dev)
# libFuzzer is C++.
fuzzing=(g++)
# QEMU and busybox run guests; iproute2 and util-linux make namespaces and taps; xz-utils unpacks
# kernel modules; socat connects sockets in the guests of examples/two-vms; mmdebstrap makes the
# guests of examples/ssh, which openssh-client reaches.
guests=(qemu-system-x86 busybox-static iproute2 util-linux xz-utils socat mmdebstrap openssh-client)
# MPI programs run over the libfabric provider.
mpi=(openmpi-bin libopenmpi-dev)
# libfabric's headers and tools, against which the provider is tested; MPI programs; Slurm and
# munge start MPI programs; tshark reads captures; Open vSwitch and ethtool are the far end of a
# VXLAN link; passt gives a guest of a stream port an address by DHCP.
suite=(libfabric-dev libfabric-bin hpcc netpipe-openmpi slurmd slurmctld slurm-client
    slurm-wlm-basic-plugins munge tshark openvswitch-switch ethtool
    passt)
# dpkg-dev, binutils and umoci make packages and images; lintian, rpm and pkg-config read them;
# mmdebstrap and systemd-container install them in a fresh Debian.
packaging=(dpkg-dev binutils umoci lintian rpm pkg-config mmdebstrap systemd-container)
# etcd keeps the directory of hosts; tests start servers of their own.
suite+=(etcd-server)
# Packages of `suite` that start a service of the same name.
services=(openvswitch-switch slurmd slurmctld munge)
# libvirt attaches a guest; no package of it starts a service. xmllint reads its schema.
suite+=(libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients libxml2-utils)
# Chromium shows the web page, headless: 20 s and 412 MB at first.
suite+=(chromium)

die() {
    report "$@" >&2
    exit 1
}

# Adds the packages of one target to `wanted`.
add_target() {
    wanted+=("${compile[@]}")
    case $1 in
    build | check | lint | sanitize | sim) ;;
    fuzz) wanted+=("${fuzzing[@]}") ;;
    demo) wanted+=("${guests[@]}" "${mpi[@]}") && needs_kernel=yes ;;
    bench) wanted+=("${guests[@]}" "${mpi[@]}" hpcc) && needs_kernel=yes ;;
    test) wanted+=("${guests[@]}" "${mpi[@]}" "${suite[@]}") && needs_kernel=yes ;;
    packages) wanted+=("${packaging[@]}") ;;
    all) add_target test && add_target packages && add_target fuzz ;;
    *) die "unknown target $1; expected build, check, lint, demo, test, packages, bench, fuzz, sanitize, sim or all" ;;
    esac
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

# Installs the missing packages of its arguments.
install_missing() {
    local missing=() package
    for package in "$@"; do
        is_installed "$package" || [[ " ${missing[*]-} " == *" $package "* ]] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    report "Debian packages to install for ${targets[*]}: ${missing[*]}"
    confirm "install them?" || die "nothing was installed; ${targets[*]} needs these packages"
    refresh_lists
    apt_install "${missing[@]}"
    for package in "${services[@]}"; do
        [[ " ${missing[*]} " != *" $package "* ]] || stop_service "$package"
    done
    [[ " ${missing[*]} " != *" etcd-server "* ]] || stop_service etcd
}

# The kernel of the guests is downloaded as a package at the first run, without root.
check_kernel_known() {
    [ ! -d "${CARGO_TARGET_DIR:-target}/vm/kernel" ] || return 0
    refresh_lists
    apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1 ||
        die "apt knows no package linux-image-cloud-amd64: this needs Debian 12 or later on amd64"
}

assume_yes='' needs_kernel='' targets=() wanted=()
for argument in "$@"; do
    case $argument in
    -y) assume_yes=yes ;;
    -*) die "unknown option $argument; expected -y" ;;
    *) targets+=("$argument") ;;
    esac
done
[ ${#targets[@]} -gt 0 ] || targets=(build)
for target in "${targets[@]}"; do
    add_target "$target"
done
check_rust
command -v apt-get >/dev/null || die "this needs Debian 12 or later"
install_missing "${wanted[@]}"
[ -z "$needs_kernel" ] || check_kernel_known
