#!/usr/bin/env bash
# Checks the packages as a user has them: lintian and rpm read them, a fresh Debian installs the
# package and boots in a container with systemd, the service serves two frontends under its unit,
# and an upgrade keeps the frontends of held ports.
#   usage: scripts/check-packages.sh BUILT EXAMPLES
#   BUILT      folder of the programs and libraries to package
#   EXAMPLES   folder of the programs vsock-server and vsock-client
# Needs root and the Debian packages of `scripts/setup.sh packages`. The Debian of the container is
# downloaded once, into target/packages-base.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 2 ] || { echo "check-packages: expected two folders" >&2 && exit 2; }
built=$(realpath "$1") examples=$(realpath "$2")
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
. scripts/package-container.sh

out=$target/packages-check
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d "${TMPDIR:-/tmp}/causeway-packages.XXXXXX")
root=$work/root
trap 'status=$?; container_stop; rm -rf "$work"; exit $status' EXIT

report() {
    echo "check-packages: $*"
}

fail() {
    report "FAILED: $*" >&2
    container_log >&2
    exit 1
}

# expect TEXT COMMAND...: fails unless the output of the command contains the text.
expect() {
    local wanted=$1 found
    shift
    found=$("$@" 2>&1) || fail "$*: status $?: $found"
    [[ $found == *"$wanted"* ]] || fail "$*: expected \"$wanted\", found: $found"
}

build() {
    rm -rf "$out"
    scripts/make-packages.sh --built "$built" --out "$out" --fast deb rpm archive >"$work/build.log" 2>&1 ||
        { cat "$work/build.log" >&2 && fail "the packages cannot be made"; }
    deb=$out/causeway_$version-1_amd64.deb
    [ -e "$deb" ] || fail "$deb was not made"
}

# Debian's rules. The packages close no bug of Debian.
check_debs() {
    lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
        "$out"/*.deb || fail "lintian has objections"
    local rebuilt=$work/deb file
    for file in "$out"/*.deb; do
        mkdir -p "$rebuilt"
        dpkg-deb -x "$file" "$rebuilt"
    done
    # The development package compiles a program.
    local dir=$rebuilt/usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
    PKG_CONFIG_SYSROOT_DIR=$rebuilt PKG_CONFIG_PATH=$dir/pkgconfig \
        pkg-config --cflags --libs myriexpress >"$work/flags"
    # shellcheck disable=SC2046 # options
    cc -o "$work/mx_pingpong" examples/c/mx_pingpong.c $(cat "$work/flags") ||
        fail "a program does not compile with the packaged headers: $(cat "$work/flags")"
    [ "$(readlink "$dir/libopen-mx.so.0")" = libmyriexpress.so ] || fail "no alias libopen-mx.so.0"
}

# Each RPM package unpacks, and together they have the files of the Debian packages.
check_rpms() {
    local file missing
    mkdir -p "$work/rpm"
    for file in "$out"/*.rpm; do
        rpm --root "$work/rpm" --dbpath /db --nodeps --noscripts --ignorearch --nosignature -i "$file" 2>"$work/rpm.log" ||
            fail "rpm -i $file: $(cat "$work/rpm.log")"
    done
    comm -23 <(names "$work/deb") <(names "$work/rpm") >"$work/missing"
    # A scriptlet makes the link.
    missing=$(grep -Ev '^(changelog\.Debian\.gz|copyright|libmyriexpress|libopen-mx\.so\.0)$' "$work/missing" || true)
    [ -z "$missing" ] || fail "files of the Debian packages that no RPM package has: $missing"
    # Flags c and n: a configuration file that an upgrade does not replace.
    expect 'cn /etc/causeway/causeway.toml' rpm -qp --nosignature \
        --qf '[%{FILEFLAGS:fflags} %{FILENAMES}\n]' "$out/causeway-$version-1.x86_64.rpm"
}

# Prints the names of files and links below a folder.
names() {
    (cd "$1" && find . \( -type f -o -type l \) ! -path './db/*' -printf '%f\n') | sort -u
}

# `make install` of the archive, below another prefix, and `make uninstall`.
check_archive() {
    local at=$work/archive unit
    mkdir -p "$at"
    tar -C "$at" -xzf "$out/causeway-$version-$(uname -m)-linux.tar.gz"
    make -s -C "$at"/causeway-* install PREFIX=/opt/causeway DESTDIR="$at/root" || fail "make install"
    unit=$at/root/opt/causeway/lib/systemd/system/causewayd.service
    grep -q '^ExecStart=/opt/causeway/bin/causewayd ' "$unit" || fail "$unit has another program"
    [ -e "$at/root/etc/causeway/causeway.toml" ] || fail "no configuration in the archive"
    "$at/root/opt/causeway/bin/causeway" --version >/dev/null || fail "the program does not run"
    make -s -C "$at"/causeway-* uninstall PREFIX=/opt/causeway DESTDIR="$at/root" || fail "make uninstall"
    [ -z "$(find "$at/root/opt" -type f)" ] || fail "files are left: $(find "$at/root/opt" -type f)"
}

# A new installation starts the service, as the unprivileged user and under the filter of the unit.
check_install() {
    local pid status
    cp "$out"/*.deb "$examples"/vsock-{server,client} "$root/root/"
    inside sh -c 'cd /root && dpkg -i causeway_*.deb libmyriexpress_*.deb libfabric-causeway_*.deb' \
        >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2 && fail "dpkg -i"; }
    wait_active causewayd causeway-holder
    expect enabled inside systemctl is-enabled causewayd causeway-holder
    expect 'causeway kvm' inside id -nG causeway
    pid=$(main_pid causewayd)
    status=$(inside cat "/proc/$pid/status")
    for line in $'Umask:\t0007' $'Seccomp:\t2' $'CapEff:\t0000000000000000' $'NoNewPrivs:\t1'; do
        [[ $status == *"$line"* ]] || fail "the daemon's status has no line \"$line\": $status"
    done
    expect "vm1-vsock" inside causeway port list
    serve
}

# Two processes as guests, at ports of the installed configuration, verify their bytes.
serve() {
    listen 7
    expect '65536 bytes there and back' inside /root/vsock-client /run/causeway/vm2-vsock.sock 3 7 65536
    wait "$server" || fail "the server ended with an error: $(cat "$work/server")"
}

# Starts a server at vm1-vsock, which accepts one connection.
listen() {
    inside stdbuf -oL /root/vsock-server /run/causeway/vm1-vsock.sock "$1" >"$work/server" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        ! grep -q 'listening' "$work/server" || return 0
        sleep 0.1
    done
    fail "the server does not listen: $(cat "$work/server")"
}

# CPUs of dispatchers, the group of sockets and a key that root has written, all within the unit.
check_settings() {
    local public config=$root/etc/causeway/causeway.toml
    public=$(inside causeway key generate --out /etc/causeway/key)
    expect 'root 600' inside stat -c '%U %a' /etc/causeway/key
    sed -i 's/^#socket_group/socket_group/; s/^\[dispatch\]$/[dispatch]\ncpus = "0"/' "$config"
    cat >>"$config" <<END

[[link]]
name = "to-b"
group = "blue"
remote = "127.0.0.1:51999"
key = "$public"

[[port]]
name = "mx0"
group = "blue"
kind = "mx"
END
    # The host's own public key is not a peer's: another key.
    sed -i "s|^key = \"$public\"|key = \"$(inside sh -c 'causeway key generate | causeway key public -')\"|" "$config"
    inside systemctl restart causewayd || fail "the service does not start with key, group and CPUs"
    expect 'causeway 600' inside stat -c '%U %a' /etc/causeway/key
    expect 'kvm 660' inside stat -c '%G %a' /run/causeway/vm1-net.sock
    expect 'to-b' inside causeway link list
    expect $'Cpus_allowed_list:\t0\n' inside sh -c "cat /proc/$(main_pid causewayd)/task/*/status; echo"
    expect mx0 inside env CAUSEWAY_MX=/run/causeway/mx0.sock causeway-mx info
    serve
}

# A package of a higher version, with the files of this version.
check_upgrade() {
    local before holder after again=$work/again config=$root/etc/causeway/causeway.toml sum
    dpkg-deb -R "$deb" "$again"
    sed -i "s/^Version: .*/Version: $version-2/" "$again/DEBIAN/control"
    dpkg-deb -Znone -b "$again" "$root/root/causeway-next.deb" >/dev/null
    before=$(main_pid causewayd) holder=$(main_pid causeway-holder) sum=$(sha256sum <"$config")
    # The server attaches now; the client connects after the upgrade.
    listen 8
    inside dpkg -i /root/causeway-next.deb >"$work/dpkg.log" 2>&1 ||
        { cat "$work/dpkg.log" >&2 && fail "dpkg -i of the next version"; }
    wait_active causewayd causeway-holder
    after=$(main_pid causewayd)
    [ "$before" != "$after" ] || fail "the upgrade did not restart causewayd"
    [ "$holder" = "$(main_pid causeway-holder)" ] || fail "the upgrade restarted the holder"
    [ "$sum" = "$(sha256sum <"$config")" ] || fail "the upgrade changed the configuration"
    kill -0 "$server" 2>/dev/null || fail "the upgrade disconnected the held port: $(cat "$work/server")"
    expect '65536 bytes there and back' inside /root/vsock-client /run/causeway/vm2-vsock.sock 3 8 65536
    wait "$server" || fail "the server ended with an error: $(cat "$work/server")"
    # A restart of the holder, by contrast, disconnects the frontend.
    listen 9
    expect_state running
    inside systemctl restart causeway-holder causewayd
    expect_state listening
    { kill "$server" && wait "$server"; } 2>/dev/null || true
}

# Fails unless the port of the server is in a state.
expect_state() {
    local found=''
    for _ in $(seq 50); do
        found=$(inside causeway port list | awk '$1 == "vm1-vsock" { print $6 }')
        [ "$found" != "$1" ] || return 0
        sleep 0.1
    done
    fail "vm1-vsock is $found instead of $1"
}

check_removal() {
    inside dpkg -r causeway >/dev/null 2>&1 || fail "dpkg -r"
    [ -z "$(inside sh -c 'pgrep -x causewayd; pgrep causeway-holder; true')" ] || fail "programs run after dpkg -r"
    [ -e "$root/etc/causeway/causeway.toml" ] || fail "dpkg -r removed the configuration"
    inside dpkg -P causeway >/dev/null 2>&1 || fail "dpkg -P"
    [ ! -e "$root/etc/causeway/causeway.toml" ] || fail "dpkg -P left the configuration"
    expect key ls "$root/etc/causeway"
}

started=$SECONDS
step() {
    "$@"
    report "$((SECONDS - started)) s: $1: ok"
}

container_usable || exit 0
step build
step check_debs
step check_rpms
step check_archive
# The container has none of our programs yet: without it, the machine is not able to run one.
if ! container_start "$root"; then
    report "NOT CHECKED in a fresh Debian: installation, service, upgrade and removal"
    exit 0
fi
step check_install
step check_settings
step check_upgrade
step check_removal
report "all packages passed"
