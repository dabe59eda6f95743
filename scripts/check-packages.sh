#!/usr/bin/env bash
# Checks the packages as a user has them: lintian and rpm read them, a fresh Debian installs the
# package and boots in a container with systemd, the service serves two frontends under its unit,
# an upgrade under load loses neither frames nor messages nor a connection of a QEMU guest, removal
# leaves nothing, and the scriptlets of the RPM package run.
#   usage: scripts/check-packages.sh BUILT EXAMPLES
#   BUILT      folder of the programs and libraries to package
#   EXAMPLES   folder of the programs vsock-server, vsock-client, ethernet-ping and
#              causeway-guest-image
# Needs root and the Debian packages of `scripts/setup.sh packages`. The Debian of the container is
# downloaded once, into target/packages-base. The QEMU guest is left out where its image cannot be
# made (`scripts/setup.sh demo`).
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
. scripts/package-guest.sh
declare -A running=()
trap 'status=$?; finish; exit $status' EXIT
trap 'exit 1' INT TERM

report() {
    echo "check-packages: $*"
}

finish() {
    guest_stop
    container_stop
    for name in "${!running[@]}"; do
        kill -- "-${running[$name]}" 2>/dev/null || true
        wait "${running[$name]}" 2>/dev/null || true
    done
    rm -rf "$work"
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
    missing=$(grep -Ev '^(changelog\.Debian\.gz|copyright|libmyriexpress)$' "$work/missing" || true)
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

# The container has rpm for the scriptlets of the RPM packages.
start_container() {
    container_base packages rpm || return 1
    mkdir -p "$root"
    tar -C "$root" -xf "$container_archive"
    container_start packages "$root"
}

# A new installation starts the service, as the unprivileged user and under the filter of the unit.
check_install() {
    local pid status
    cp "$out"/*.deb "$examples"/vsock-{server,client} "$examples/ethernet-ping" "$root/root/"
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
    # Boots while the next steps run.
    ! guest_usable || guest_start
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
    await listening "$work/server"
}

# await TEXT FILE: waits until a program has printed the text.
await() {
    for _ in $(seq 100); do
        ! grep -q "$1" "$2" || return 0
        sleep 0.1
    done
    fail "no \"$1\" after 10 s: $(cat "$2")"
}

# CPUs of dispatchers, the group of sockets and a key that root has written, all within the unit.
check_settings() {
    local public config=$root/etc/causeway/causeway.toml
    public=$(inside causeway key generate --out /etc/causeway/key)
    expect 'root 600' inside stat -c '%U %a' /etc/causeway/key
    # Network interfaces are held too: the programs of this script do not connect again.
    sed -i 's/^#socket_group/socket_group/; s/^hold = .*/hold = "all"/; s/^\[dispatch\]$/[dispatch]\ncpus = "0"/' "$config"
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

# The version after this: 0.2.0 after 0.1.7.
next_version() {
    awk -F . '{ print $1 "." $2 + 1 ".0" }' <<<"$version"
}

# Starts an exchange of frames, in which one frame that is lost ends the program with an error, and an
# exchange of messages of which each byte is verified; each length takes about a second.
begin_load() {
    inside stdbuf -oL /root/ethernet-ping /run/causeway/vm2-net.sock >"$work/answers" 2>&1 &
    answers=$!
    await answering "$work/answers"
    inside /root/ethernet-ping /run/causeway/vm1-net.sock 52:54:00:00:00:02 4000000000 >"$work/pings" 2>&1 &
    pings=$!
    inside env CAUSEWAY_MX=/run/causeway/mx0.sock causeway-mx serve >"$work/echo" 2>&1 &
    echo=$!
    sleep 0.5
    inside env CAUSEWAY_MX=/run/causeway/mx0.sock causeway-mx pingpong mx0 --verify --blocking \
        --sizes "8$(printf ',1K,32K,1M,8%.0s' {1..20})" >"$work/messages" 2>&1 &
    messages=$!
}

# Prints the number of frames that vm1-net has sent since causewayd started.
frames_sent() {
    inside causeway stats -o openmetrics |
        awk '/^causeway_port_transmit_packets_total\{/ && /"vm1-net"/ { print $2 }'
}

# Checks that both exchanges went on, and ends them.
end_load() {
    local first second
    # The length during which causewayd was away, and each of the four after it.
    first=$(wc -l <"$work/messages")
    for _ in $(seq 1200); do
        second=$(wc -l <"$work/messages")
        [ "$second" -lt $((first + 5)) ] && kill -0 "$messages" 2>/dev/null || break
        sleep 0.1
    done
    [ "$second" -ge $((first + 5)) ] || fail "messages are not exchanged: $(cat "$work/messages")"
    first=$(frames_sent) second=0
    # A busy machine is slow, and a program that misses a frame ends after ten seconds.
    for _ in $(seq 120); do
        second=$(frames_sent)
        [ "$second" -le "$first" ] || break
        sleep 0.1
    done
    [ "$second" -gt "$first" ] || fail "no frames are exchanged after $first: $(cat "$work/pings")"
    kill -0 "$pings" "$answers" 2>/dev/null || fail "frames were lost: $(cat "$work/pings" "$work/answers")"
    # By name: nsenter passes no signal on.
    inside pkill 'ethernet-ping|causeway-mx'
    wait "$pings" "$answers" "$messages" "$echo" 2>/dev/null || true
}

# A package of the next version, with the files of this version, while frames and messages cross.
check_upgrade() {
    local before holder after again=$work/again config=$root/etc/causeway/causeway.toml sum
    dpkg-deb -R "$deb" "$again"
    sed -i "s/^Version: .*/Version: $(next_version)-1/" "$again/DEBIAN/control"
    dpkg-deb -Znone -b "$again" "$root/root/causeway-next.deb" >/dev/null
    before=$(main_pid causewayd) holder=$(main_pid causeway-holder) sum=$(sha256sum <"$config")
    ! guest_usable || guest_goes_on 300
    # The server attaches now; the client connects after the upgrade.
    listen 8
    begin_load
    inside dpkg -i /root/causeway-next.deb >"$work/dpkg.log" 2>&1 ||
        { cat "$work/dpkg.log" >&2 && fail "dpkg -i of the next version"; }
    wait_active causewayd causeway-holder
    expect "$(next_version)-1" inside dpkg-query -W causeway
    kill -0 "$messages" 2>/dev/null || fail "the upgrade ended the messages: $(cat "$work/messages")"
    after=$(main_pid causewayd)
    [ "$before" != "$after" ] || fail "the upgrade did not restart causewayd"
    [ "$holder" = "$(main_pid causeway-holder)" ] || fail "the upgrade restarted the holder"
    [ "$sum" = "$(sha256sum <"$config")" ] || fail "the upgrade changed the configuration"
    kill -0 "$server" 2>/dev/null || fail "the upgrade disconnected the held port: $(cat "$work/server")"
    expect '65536 bytes there and back' inside /root/vsock-client /run/causeway/vm2-vsock.sock 3 8 65536
    wait "$server" || fail "the server ended with an error: $(cat "$work/server")"
    end_load
    ! guest_usable || guest_goes_on 120
    # A restart of the holder, by contrast, disconnects the frontend.
    listen 9
    expect_state running
    inside systemctl restart causeway-holder causewayd
    expect_state listening
    inside pkill vsock-server || true
    wait "$server" 2>/dev/null || true
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
    [ -z "$(programs)" ] || fail "programs run after dpkg -r: $(programs)"
    [ -e "$root/etc/causeway/causeway.toml" ] || fail "dpkg -r removed the configuration"
    inside dpkg -P causeway libmyriexpress-dev libmyriexpress libfabric-causeway >/dev/null 2>&1 || fail "dpkg -P"
    # The key belongs to the operator, and the user may own files elsewhere.
    [ "$(remains)" = /etc/causeway/key ] || fail "dpkg -P left: $(remains)"
}

# Prints the programs of the packages that run.
programs() {
    inside sh -c 'pgrep -x causewayd; pgrep causeway-holder; true'
}

# Prints the files of the packages, apart from folders.
remains() {
    rm -f "$root"/root/*.deb
    inside find / /run -xdev \( -path /root -o -path /var/log \) -prune -o ! -type d \
        \( -path '*causeway*' -o -name '*myriexpress*' -o -name '*open-mx*' \) -print
}

# Installs, upgrades and removes the RPM package by rpm, with its scriptlets, under systemd.
check_scriptlets() {
    local before holder
    cp "$out/causeway-$version-1.x86_64.rpm" "$root/root/causeway.rpm"
    inside userdel causeway
    rm -rf "$root/etc/causeway"
    rpm_of_debian -i --oldpackage
    expect 'causeway kvm' inside id -nG causeway
    expect enabled inside systemctl is-enabled causewayd causeway-holder
    # rpm does not start services; the operator does.
    inside systemctl start causeway-holder causewayd || fail "the services of the RPM package do not start"
    expect vm1-vsock inside causeway port list
    before=$(main_pid causewayd) holder=$(main_pid causeway-holder)
    # An upgrade runs the scriptlets with the argument 2, and 1 for the version that leaves.
    rpm_of_debian -U --force
    wait_active causewayd causeway-holder
    [ "$before" != "$(main_pid causewayd)" ] || fail "the upgrade by rpm did not restart causewayd"
    [ "$holder" = "$(main_pid causeway-holder)" ] || fail "the upgrade by rpm restarted the holder"
    inside rpm -e --nodeps causeway >"$work/rpm.log" 2>&1 || fail "rpm -e: $(cat "$work/rpm.log")"
    [ -z "$(programs)" ] || fail "programs run after rpm -e: $(programs)"
    expect '' inside rm -rf /run/causeway /var/lib/causeway
    [ -z "$(remains)" ] || fail "rpm -e left: $(remains)"
}

# Runs rpm in the container, whose packages rpm does not know; any complaint of a scriptlet fails.
rpm_of_debian() {
    inside rpm "$@" --nodeps --ignorearch --nosignature /root/causeway.rpm >"$work/rpm.log" 2>&1 ||
        fail "rpm $1: $(cat "$work/rpm.log")"
    ! grep -E 'scriptlet|failed|command not found' "$work/rpm.log" || fail "rpm $1: $(cat "$work/rpm.log")"
}

# Lint, RPM packages and the archive: on the machine itself, beside the container.
check_files() {
    check_debs
    check_rpms
    check_archive
}

started=$SECONDS
step() {
    "$@"
    report "$((SECONDS - started)) s: $1: ok"
}

# beside COMMAND...: starts a step beside the next ones, in a process group of its own.
beside() {
    set -m
    (step "$@") </dev/null &
    set +m
    running[$1]=$!
}

# join COMMAND: waits for a step; its status is that of the step.
join() {
    local status=0
    wait "${running[$1]}" || status=$?
    unset "running[$1]"
    return $status
}

container_usable || exit 0
beside container_base packages rpm
beside guest_prepare
step build
beside check_files
# The container has none of our programs yet: without it, the machine is not able to run one.
if ! { join container_base && start_container; }; then
    join check_files
    report "NOT CHECKED in a fresh Debian: installation, service, upgrade, removal and scriptlets"
    exit 0
fi
join guest_prepare || report "NOT CHECKED: a QEMU guest during the upgrade"
step check_install
step check_settings
step check_upgrade
step check_removal
step check_scriptlets
join check_files
report "all packages passed"
