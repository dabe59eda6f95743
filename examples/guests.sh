# Functions of two-vms/run and three-hosts/run: the programs, and guests with Debian's kernel.
# The scripts source this file, and set: `root`, the source tree; `folder`, where sockets and
# consoles are created; `here`, the folder of the script with a file of commands for each guest.
# shellcheck shell=bash disable=SC2154 # variables of the scripts

guests=()
boot_seconds=${CAUSEWAY_BOOT_SECONDS:-300}
export PATH="$HOME/.cargo/bin:$PATH"

die() {
    echo "$(basename "$here"): $*" >&2
    exit 1
}

# Prints a command and runs it.
show() {
    echo "\$ $*"
    "$@"
}

# build OPTION...: sets `bin`, the folder of causewayd and causeway, and for the guests `kernel`,
# `release`, `initramfs`, `qemu` and `accel`. CAUSEWAY_BIN_DIR names a folder with programs that are built
# already; the options are for cargo, such as another package.
build() {
    local image assignments
    if [ -n "${CAUSEWAY_BIN_DIR-}" ]; then
        bin=$(realpath "$CAUSEWAY_BIN_DIR")
    else
        (cd "$root" && cargo build --release --quiet -p causeway-daemon -p causeway-cli -p causeway-vm "$@")
        bin=${CARGO_TARGET_DIR:-$root/target}/release
    fi
    image=${CAUSEWAY_GUEST_IMAGE:-$bin/causeway-guest-image}
    [ -x "$bin/causewayd" ] || die "$bin/causewayd is missing: build it, or unset CAUSEWAY_BIN_DIR"
    assignments=$("$image")
    eval "$assignments"
}

# make_initramfs GUEST...: writes $folder/guest.cpio: the initramfs of the tests, to which socat with its
# libraries, the first process and the commands of the guests are appended. Linux unpacks archives that
# follow each other.
make_initramfs() {
    local programs=$folder/programs file
    command -v socat >/dev/null || die "socat is missing: run scripts/setup.sh demo"
    mkdir -p "$programs/bin" "$programs/session"
    cp "$(command -v socat)" "$programs/bin/"
    for file in $(ldd "$(command -v socat)" | grep -o '/[^ ]*'); do
        mkdir -p "$programs/$(dirname "$file")"
        cp -L "$file" "$programs/$file"
    done
    cp "$root/examples/guest-init" "${@/#/$here/}" "$programs/session/"
    chmod +x "$programs/session/guest-init"
    (cd "$programs" && find . | busybox cpio -o -H newc 2>/dev/null) >"$folder/added.cpio"
    cat "$initramfs" "$folder/added.cpio" >"$folder/guest.cpio"
    rm -rf "$programs" "$folder/added.cpio"
}

# start_guest NAME ARGUMENT...: starts a guest with these arguments of QEMU in the background, and
# sets `pid`. Its console is the socket $folder/NAME.console; its output is in $folder/NAME.log.
start_guest() {
    local name=$1
    shift
    "$qemu" -name "$name" -nodefaults -no-user-config -display none -accel "$accel" \
        "$@" -kernel "$kernel" -initrd "$folder/guest.cpio" \
        -append "console=ttyS0 quiet no_timer_check rdinit=/session/guest-init guest=$name" \
        -chardev "socket,id=console,path=$folder/$name.console,server=on,wait=off,logfile=$folder/$name.log" \
        -serial chardev:console 2>"$folder/$name.qemu" &
    pid=$!
    guests+=("$pid")
}

# await GUEST TEXT: waits until the console of a guest has a text.
await() {
    local end=$((SECONDS + boot_seconds))
    until grep -q "$2" "$folder/$1.log" 2>/dev/null; do
        [ $SECONDS -lt $end ] || die "$1 did not print '$2' in $boot_seconds s: $(tail -n 20 "$folder/$1.log")"
        kill -0 "${guests[@]}" 2>/dev/null || die "$1 ended: $(tail -n 20 "$folder/$1."{qemu,log})"
        sleep 0.2
    done
}
