# Functions that install Debian packages; sourced by setup.sh and bench-peers.sh.
# The caller sets `self`, the prefix of each line of output. A non-empty `assume_yes` answers the
# question of `confirm`.

report() {
    printf '%s: %s\n' "$self" "$@"
}

# Runs a command as root: directly, or with sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        report "this needs root, and sudo is not installed. Run this as root, then try again:" \
            "  $*" >&2
        return 1
    fi
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Asks before packages are installed. Without a terminal, as in scripts and CI, it does not ask;
# nor with the option `-y` of the scripts.
confirm() {
    [ -z "${assume_yes:-}" ] && [ -t 0 ] && [ -t 1 ] || return 0
    local answer
    read -r -p "$self: $1 [Y/n] " answer || return 1
    [[ $answer =~ ^([Yy].*)?$ ]]
}

# Downloads the package lists where they are missing or a day old: old lists name package versions
# that the archive has removed.
refresh_lists() {
    [ -z "${lists_fresh:-}" ] || return 0
    lists_fresh=yes
    [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' -mtime -1 -print -quit 2>/dev/null)" ] ||
        return 0
    report "apt-get update"
    as_root apt-get update -qq
}

# Installs packages by name.
apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# Stops and disables a service that a package started: tests and benchmarks run instances of
# their own.
stop_service() {
    [ -d /run/systemd/system ] || return 0
    report "stopping and disabling the service $1, which its package started"
    as_root systemctl disable --now "$1" >/dev/null 2>&1 || true
}
