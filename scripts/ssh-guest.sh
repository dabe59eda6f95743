#!/usr/bin/env bash
# Makes the image of guests for examples/ssh: a fresh Debian 13 with its kernel, systemd and
# OpenSSH, as its packages install them. Nothing is configured in it. Installs nothing on this host.
#   usage: scripts/ssh-guest.sh [DIR]
#   DIR     cache, relative to the workspace (default target/vm/ssh)
# The package causeway has it beside the example, which names its own cache.
# Results in DIR:
#   vmlinuz      the kernel
#   guest.cpio   the root file system, for the kernel's -initrd; 200 MB
#   release      versions, as a line
#   proxy/       systemd-ssh-proxy with its libraries, for tests on hosts with an older systemd
# A complete cache is used as it is, without network. The packages come from the mirror
# CAUSEWAY_MIRROR (default http://deb.debian.org/debian), with the archive's signatures. Needs
# mmdebstrap, and root or user namespaces (the package uidmap).
set -euo pipefail
cd "$(dirname "$0")/.."
packages=linux-image-cloud-amd64,systemd-sysv,udev,dbus,libpam-systemd,openssh-server,openssh-client
dir=${1:-${CARGO_TARGET_DIR:-target}/vm/ssh}
mirror=${CAUSEWAY_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

report() {
    printf 'ssh-guest: %s\n' "$@"
}

die() {
    report "$@" >&2
    exit 1
}

# Runs in the root file system $1, as its root: makes the files that the cache gets. The initial RAM
# disk of Debian is not used, because the whole system is one.
make_files() {
    cat <<'END'
set -e
cd "$1"
mkdir results results/proxy
cp boot/vmlinuz-* results/vmlinuz
release=$(basename lib/modules/*)
systemd=$(chroot . systemctl --version | sed -n 's/^systemd \([0-9]*\).*/\1/p')
echo "Debian $(cat etc/debian_version), Linux $release, systemd $systemd" >results/release
proxy=usr/lib/systemd/systemd-ssh-proxy
for file in $proxy $(chroot . ldd /$proxy | grep -o '/[^ ]*'); do
    cp -L "./$file" results/proxy/
done
rm -rf boot/* var/cache/* var/lib/apt/lists/* usr/share/doc/* usr/share/man/* usr/share/locale/* \
    usr/share/zoneinfo/* usr/lib/x86_64-linux-gnu/gconv
: >etc/machine-id
find . -xdev -path ./results -prune -o -print | busybox cpio -o -H newc 2>/dev/null >results/guest.cpio
END
}

mkdir -p "$dir"
dir=$(realpath "$dir")
exec 9>"$dir/lock"
flock 9
recipe="$packages $(make_files | cksum)"
[ "$(cat "$dir/complete" 2>/dev/null)" != "$recipe" ] || exit 0
for tool in mmdebstrap busybox; do
    command -v "$tool" >/dev/null ||
        die "$tool is missing; install: mmdebstrap busybox-static uidmap (scripts/setup.sh demo)"
done
[ -e "$keyring" ] || die "the keys of the Debian archive are missing; install the package debian-archive-keyring"
report "making a Debian 13 guest from $mirror; this takes some minutes, once"
rm -rf "$dir"/{complete,vmlinuz,guest.cpio,release,proxy,hook}
make_files >"$dir/hook"
mmdebstrap --quiet --variant=minbase --include="$packages" --keyring="$keyring" --format=null \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook="sh -s -- \"\$1\" <'$dir/hook'" \
    --customize-hook="sync-out /results '$dir'" \
    trixie /dev/null "deb $mirror trixie main" 2>"$dir/log" ||
    die "the guest cannot be made; check the network and CAUSEWAY_MIRROR: $(tail -n 5 "$dir/log")"
rm -f "$dir/hook"
[ -s "$dir/guest.cpio" ] || die "the guest is incomplete: $(tail -n 5 "$dir/log")"
echo "$recipe" >"$dir/complete"
report "complete in $dir: $(cat "$dir/release")"
