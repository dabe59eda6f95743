# A fresh Debian with systemd in a container; sourced by check-packages.sh, which sets `target` and
# `work`.

# The Debian of the container is that of this machine.
container_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
container_pid='' container_leader=''

# Reports why the packages cannot be checked here.
container_usable() {
    local program
    for program in mmdebstrap systemd-nspawn lintian rpm pkg-config nsenter; do
        command -v "$program" >/dev/null ||
            { report "skipped: $program is not installed (scripts/setup.sh packages)" && return 1; }
    done
    [ "$(id -u)" -eq 0 ] || { report "skipped: a container needs root" && return 1; }
}

# Unpacks a fresh Debian into a folder, and boots it in namespaces of its own. Fails with a report
# where the machine has no access to Debian, or does not permit a container.
container_start() {
    local root=$1 base=$target/packages-base/$container_suite.tar
    if [ ! -e "$base" ]; then
        mkdir -p "${base%/*}"
        report "downloading Debian $container_suite into $base"
        mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus,udev,procps \
            --dpkgopt=path-exclude=/usr/share/locale/* "$container_suite" "$base.new" ||
            { report "Debian $container_suite cannot be downloaded" && return 1; }
        mv "$base.new" "$base"
    fi
    mkdir -p "$root"
    tar -C "$root" -xf "$base"
    systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit --private-network \
        --link-journal=no --console=pipe --machine="causeway-check-$$" \
        --system-call-filter='landlock_create_ruleset landlock_add_rule landlock_restrict_self' \
        >"$work/boot.log" 2>&1 </dev/null &
    container_pid=$!
    for _ in $(seq 300); do
        container_leader=$(pgrep -P "$container_pid" | head -n 1 || true)
        if [ -n "$container_leader" ] &&
            [[ $(inside systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]; then
            return 0
        fi
        kill -0 "$container_pid" 2>/dev/null || break
        sleep 0.2
    done
    report "the container does not boot: $(tail -n 20 "$work/boot.log")"
    return 1
}

# Runs a command in the container.
inside() {
    nsenter -t "$container_leader" -m -u -i -n -p -r -w env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root "$@"
}

# Prints the process of a service.
main_pid() {
    inside systemctl show -P MainPID "$1"
}

wait_active() {
    for _ in $(seq 100); do
        ! inside systemctl is-active --quiet "$@" || return 0
        sleep 0.1
    done
    fail "not active: $*"
}

# Prints the log of the services.
container_log() {
    [ -z "$container_leader" ] ||
        inside journalctl --no-pager -n 40 -u causewayd -u causeway-holder 2>/dev/null || true
}

# Ends the container with all of its processes.
container_stop() {
    [ -n "$container_pid" ] || return 0
    kill -KILL "${container_leader:-$container_pid}" 2>/dev/null || true
    wait "$container_pid" 2>/dev/null || true
    container_pid=''
}
