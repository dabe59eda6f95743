#!/usr/bin/env bash
# Follows README.md and the guides as a stranger does: on two fresh Debians that boot in containers,
# with the packages installed, runs every command of the pages, and compares every output that they
# show.
#   usage: scripts/check-guides.sh BUILT [PAGE...]
#   BUILT   folder of the programs and libraries to package
#   PAGE    a page, instead of all of `pages` below
# Blocks of kind `sh` and `console` run on host-a, as the user `stranger` in a login of its own. A
# comment above a block, which readers do not see, says otherwise:
#   <!-- not run: REASON -->        nothing runs
#   <!-- on host-b, as root -->     runs on the second host (or: on both hosts); by root
#   <!-- one command -->            the first line is a command, the rest is its output
#   <!-- with module NAME -->       nothing runs where the kernel lacks the module
#   <!-- in FILE -->                a block of configuration is put into FILE, by root
# Needs root and the Debian packages of `scripts/setup.sh packages`. README.md boots two emulated
# guests, from the image that scripts/ssh-guest.sh makes.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "check-guides: expected a folder" >&2 && exit 2; }
built=$(realpath "$1")
shift
pages=(README.md docs/guide/{install,qemu,forward,production,processes,two-hosts,vxlan,mpi}.md)
[ $# -eq 0 ] || pages=("$@")
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
. scripts/package-container.sh

work=$(mktemp -d "${TMPDIR:-/tmp}/causeway-guides.XXXXXX")
hosts=(host-a host-b)
ran=0 skipped=0
trap 'status=$?; trap "" INT TERM; finish; exit $status' EXIT
trap 'exit 1' INT TERM

report() {
    echo "check-guides: $*"
}

fail() {
    report "FAILED: $*" >&2
    container_log >&2
    exit 1
}

finish() {
    local host
    container_stop
    for host in "${hosts[@]}"; do
        ! mountpoint -q "$work/$host/root" || umount --lazy "$work/$host/root"
    done
    ip link del "cg-a-$$" 2>/dev/null || true
    rm -rf "$work"
}

# Packages that the pages tell the reader to install, with those of a Debian that a person installs.
wanted_packages() {
    local named
    named=$(sed -n 's/^sudo apt install --no-install-recommends \([^#]*\).*/\1/p' README.md docs/guide/*.md)
    # shellcheck disable=SC2086 # words
    printf '%s\n' sudo iproute2 iputils-ping less socat nftables openvswitch-switch tshark $named | sort -u | paste -sd ,
}

# Boots the hosts with the packages in the home of `stranger`, joined by a cable.
start_hosts() {
    local host letter root
    scripts/make-packages.sh --built "$built" --out "$work/packages" --fast deb >"$work/build.log" 2>&1 ||
        fail "the packages cannot be made: $(cat "$work/build.log")"
    mkdir "$work/base"
    # With the capabilities of programs.
    tar -C "$work/base" --xattrs --xattrs-include='*' -xf "$container_archive"
    ip link add "cg-a-$$" type veth peer name "cg-b-$$"
    for host in "${hosts[@]}"; do
        letter=${host#host-} root=$work/$host/root
        mkdir -p "$work/$host"/{upper,work,root}
        mount -t overlay overlay -o "lowerdir=$work/base,upperdir=$work/$host/upper,workdir=$work/$host/work" "$root"
        echo "$host" >"$root/etc/hostname"
        printf '%s\n' '127.0.0.1 localhost' '10.1.0.1 host-a' '10.1.0.2 host-b' >"$root/etc/hosts"
        : >"$root/etc/machine-id"
        echo 'stranger ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/stranger"
        chroot "$root" useradd --create-home --shell /bin/bash stranger
        cp "$work/packages"/*.deb "$root/home/stranger/"
        rm -f "$root"/var/lib/apt/lists/lock
        container_start "$host" "$root" --bind=/dev/net/tun ||
            fail "NOT CHECKED: no container"
        ip link set "cg-$letter-$$" netns "${container_leaders[$host]}" name eth0
        inside ip address add "10.1.0.$([ "$letter" = a ] && echo 1 || echo 2)/24" dev eth0
        inside ip link set eth0 up
    done
}

# The image of README.md's guests is made once per machine, not once per container.
give_image() {
    local cache=$target/vm/ssh home
    [[ " ${pages[*]} " == *" README.md "* ]] || return 0
    scripts/ssh-guest.sh "$cache"
    home=$work/host-a/root/home/stranger
    mkdir -p "$home/.cache/causeway"
    cp -r "$cache" "$home/.cache/causeway/ssh"
    chroot "$work/host-a/root" chown -R stranger: /home/stranger/.cache
}

# Prints the text of a block with the keys of the hosts in place of their names.
filled() {
    local text host key
    text=$(cat "$1")
    for host in "${hosts[@]}"; do
        key=$(cat "$work/$host/root/etc/causeway/key" 2>/dev/null | "$built/causeway" key public - 2>/dev/null || true)
        [ -z "$key" ] || text=${text//KEY-OF-$([ "$host" = host-a ] && echo A || echo B)/$key}
    done
    printf '%s\n' "$text"
}

# Prints a script that shows each command of a session before its output.
session_script() {
    local first=$1
    awk -v first="$first" '
        /^\$ / && !(first && count) {
            count++
            text = substr($0, 3)
            quoted = text
            gsub(/\047/, "\047\\\047\047", quoted)
            printf "printf \047%%s\\n\047 \047$ %s\047\n{ %s\n} 2>&1\n", quoted, text
        }'
}

# Reads a session; prints the lines that are equal in each run: no blank lines, no line of versions,
# and one word for times, addresses that are derived from the machine, and port numbers of the host.
stable() {
    sed -E -e '/^(ssh|two-vms): /d; /^[[:space:]]*$/d; s/[[:space:]]+/ /g; s/ $//' \
        -e 's#= [0-9.]+(/[0-9.]+){2,3} #= TIMES #; s/\b0?[0-9]+(\.[0-9]+)? ?(ms|us|s)\b/TIME/g; s/^OK [0-9]+$/OK PORT/' \
        -e 's/\b[0-9a-f][26ae](:[0-9a-f]{2}){5}\b/MAC/g; s/MAC(52:54)/\1/g'
}

# run_block HOST FILE KIND WHERE MARK: runs a block of kind sh or console.
run_block() {
    local host=$1 file=$2 kind=$3 where=$4 mark=$5 user=stranger status=0 root out
    container=$host
    [[ $mark != *'as root'* ]] || user=root
    root=$work/$container/root out=$work/$container/root/home/output
    filled "$file" >"$work/block"
    if [ "$kind" = console ]; then
        session_script "$([[ $mark != *'one command'* ]] || echo 1)" <"$work/block" >"$root/home/block"
    else
        cp "$work/block" "$root/home/block"
    fi
    : >"$out"
    chmod 644 "$root/home/block"
    # A busy machine boots the emulated guests slowly.
    inside env CAUSEWAY_BOOT_SECONDS=900 timeout 1200 runuser -l "$user" -w CAUSEWAY_BOOT_SECONDS -c \
        'bash -euo pipefail /home/block' >"$out" 2>&1 </dev/null || status=$?
    [ $status -eq 0 ] || fail "$where: status $status of: $(cat "$work/block"; echo; cat "$out")"
    if [ "$kind" = console ]; then
        stable <"$work/block" >"$work/shown"
        stable <"$out" >"$work/printed"
        diff "$work/shown" "$work/printed" >"$work/diff" ||
            fail "$where: the page shows (<) what is not printed (>): $(cat "$work/diff")"
    fi
}

# put_block HOST FILE TARGET: puts a block of configuration into a file: lines below a table that the
# file has go there, others to its end.
put_block() {
    local host=$1 file=$2 to=$work/$1/root$3
    mkdir -p "$(dirname "$to")"
    filled "$file" >"$work/block"
    [ -e "$to" ] || : >"$to"
    awk -v header="$(head -n 1 "$work/block")" -v block="$work/block" '
        { print }
        header ~ /^\[[a-z]+\]$/ && $0 == header {
            getline line <block
            while ((getline line <block) > 0) print line
            found = 1
        }
        END { if (!found) { print ""; while ((getline line <block) > 0) print line } }' \
        "$to" >"$work/put"
    cat "$work/put" >"$to"
}

# Prints the hosts of a mark.
hosts_of() {
    case $1 in
    *'on both hosts'*) echo "${hosts[@]}" ;;
    *'on host-b'*) echo host-b ;;
    *) echo host-a ;;
    esac
}

has_module() {
    [ -d "/sys/module/$1" ] || modprobe -q "$1"
}

follow() {
    local host page=$1 how file kind line mark folder started=$SECONDS count=0
    folder=$work/blocks/${page//\//-}
    mkdir -p "$folder"
    awk -v out="$folder" -f scripts/guide-blocks.awk "$page"
    for how in "$folder"/*.how; do
        file=${how%.how}
        IFS=$'\t' read -r kind line mark <"$how" || true
        case $mark in
        'not run: '*)
            skipped=$((skipped + 1))
            report "$page:$line: not run: ${mark#not run: }"
            continue
            ;;
        *'with module '*)
            if ! has_module "${mark##*with module }"; then
                skipped=$((skipped + 1))
                report "$page:$line: not run: the kernel has no module ${mark##*with module }"
                continue
            fi
            ;;
        esac
        for host in $(hosts_of "$mark"); do
            case $mark/$kind in
            'in '*) put_block "$host" "$file" "$(sed -E 's/^in ([^ ,]*).*/\1/' <<<"$mark")" ;;
            */sh | */console) run_block "$host" "$file" "$kind" "$page:$line" "$mark" ;;
            *) continue ;;
            esac
            count=$((count + 1))
        done
    done
    ran=$((ran + count))
    report "$((SECONDS - started)) s: $page: $count blocks ran"
}

container_usable || exit 0
container_base guides "$(wanted_packages)" || exit 0
start_hosts
give_image
# The second host is installed as README.md says, too.
awk -v out="$work" -f scripts/guide-blocks.awk README.md
run_block host-b "$work/001" sh 'README.md on host-b' ''
[[ " ${pages[*]} " == *" README.md "* ]] || run_block host-a "$work/001" sh README.md ''
for page in "${pages[@]}"; do
    follow "$page"
done
report "$ran blocks ran, $skipped were not run"
