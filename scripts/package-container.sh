# Containers with a fresh Debian and systemd; sourced by check-packages.sh and check-guides.sh, which
# set `target` and `work`, and define `report` and `fail`. A script may start several containers: the
# functions below act on the last that was started or entered.

# The Debian of the containers is that of this machine.
container_suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# What every container has.
container_packages=systemd,systemd-sysv,dbus,udev,procps
# Process of systemd-nspawn, and of the container's first process, by name.
declare -A container_pids=() container_leaders=()
container=''

# Reports why the packages cannot be checked here.
container_usable() {
    local program
    for program in mmdebstrap systemd-nspawn lintian rpm pkg-config nsenter; do
        command -v "$program" >/dev/null ||
            { report "skipped: $program is not installed (scripts/setup.sh packages)" && return 1; }
    done
    [ "$(id -u)" -eq 0 ] || { report "skipped: a container needs root" && return 1; }
}

# container_base NAME PACKAGES: sets `container_archive` to a fresh Debian with further packages,
# separated by commas. The archive is downloaded once, into target/packages-base.
container_base() {
    local all=$container_packages${2:+,$2} sum
    sum=$(echo "$container_suite $all" | cksum | cut -d ' ' -f 1)
    container_archive=$target/packages-base/$1-$sum.tar
    [ ! -e "$container_archive" ] || return 0
    mkdir -p "${container_archive%/*}"
    rm -f "${container_archive%/*}/$1"-*.tar
    report "downloading Debian $container_suite with $all into $container_archive"
    mmdebstrap --quiet --variant=minbase --include="$all" \
        --dpkgopt=path-exclude=/usr/share/locale/* "$container_suite" "${container_archive%.tar}.new.tar" ||
        { report "Debian $container_suite cannot be downloaded" && return 1; }
    mv "${container_archive%.tar}.new.tar" "$container_archive"
}

# container_start NAME ROOT [OPTION...]: boots the Debian in a folder, in namespaces of its own, with
# options of systemd-nspawn. Fails with a report where the machine does not permit a container.
container_start() {
    local name=$1 root=$2
    shift 2
    container=$name
    systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit --private-network \
        --link-journal=no --console=pipe --machine="causeway-$name-$$" \
        --system-call-filter='landlock_create_ruleset landlock_add_rule landlock_restrict_self' \
        "$@" >"$work/boot-$name.log" 2>&1 </dev/null &
    container_pids[$name]=$!
    for _ in $(seq 300); do
        container_leaders[$name]=$(pgrep -P "${container_pids[$name]}" | head -n 1 || true)
        if [ -n "${container_leaders[$name]}" ] &&
            [[ $(inside systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]; then
            return 0
        fi
        kill -0 "${container_pids[$name]}" 2>/dev/null || break
        sleep 0.2
    done
    report "the container $name does not boot: $(tail -n 20 "$work/boot-$name.log")"
    return 1
}

# Runs a command in the container.
inside() {
    nsenter -t "${container_leaders[$container]}" -m -u -i -n -p -r -w \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
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
    [ -z "$container" ] || [ -z "${container_leaders[$container]-}" ] ||
        inside journalctl --no-pager -n 40 -u causewayd -u causeway-holder 2>/dev/null || true
}

# Ends the containers with all of their processes.
container_stop() {
    local name
    for name in "${!container_pids[@]}"; do
        kill -KILL "${container_leaders[$name]:-${container_pids[$name]}}" 2>/dev/null || true
        wait "${container_pids[$name]}" 2>/dev/null || true
        unset "container_pids[$name]" "container_leaders[$name]"
    done
}
