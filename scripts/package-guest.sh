# A QEMU guest of this machine at ports of a container's causewayd; sourced by check-packages.sh, which
# sets `work` and `examples`, and defines `report` and `fail`.
#
# The guest has two network interfaces, one in a network namespace of its own, so that one TCP
# connection from the first to the second crosses causewayd twice. The guest sends a number over it
# ten times a second, compares each number that comes back, and prints it. A shell of the guest
# listens at port 5000 of AF_VSOCK.

guest_process=''
guest_console=$work/guest.console

# True if the guest can be started.
guest_usable() {
    [ -e "$work/guest.cpio" ]
}

# Makes the kernel, the file system and the values that guest_start reads. Fails where the machine
# cannot make them.
guest_prepare() {
    local added=$work/guest-files initramfs
    [ -x "$examples/causeway-guest-image" ] || { report "$examples/causeway-guest-image is missing" && return 1; }
    "$examples/causeway-guest-image" >"$work/guest.values" || return 1
    eval "$(cat "$work/guest.values")"
    mkdir -p "$added"
    guest_script >"$added/guest-init"
    chmod +x "$added/guest-init"
    # Linux unpacks archives that follow each other.
    (cd "$added" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/guest-added.cpio"
    cat "$initramfs" "$work/guest-added.cpio" >"$work/guest.new"
    mv "$work/guest.new" "$work/guest.cpio"
}

# The first process of the guest.
guest_script() {
    cat <<'END'
#!/bin/busybox sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "$module"; done </etc/modules
echo 1 >/proc/sys/kernel/printk
unshare -n sleep 100000 &
sleep 1
ip link set eth1 netns $!
ip address add 10.9.0.1/24 dev eth0
ip link set eth0 up
nsenter -t $! -n sh -c 'ip address add 10.9.0.2/24 dev eth1; ip link set eth1 up; exec nc -ll -p 5000 -e cat' &
causeway-guest shell vsock:4294967295:5000 &
until nsenter -t $! -n true && ping -c 1 -W 1 10.9.0.2 >/dev/null; do sleep 1; done
numbers() { n=0; while :; do echo $n; n=$((n + 1)); usleep 100000; done; }
numbers | nc 10.9.0.2 5000 | {
    n=0
    while read -r came; do
        [ "$came" = "$n" ] || echo "guest: FAILED: $came instead of $n"
        echo "guest: number $n"
        n=$((n + 1))
    done
    echo "guest: FAILED: the TCP connection ended"
}
sleep 100000
END
}

# guest_start: adds the ports `guest-net`, `guest-net2` and `guest-vsock` to the group blue at run time,
# and starts the guest with the arguments that `causeway vm show` prints.
guest_start() {
    local arguments qemu kernel accel at=/proc/${container_leaders[$container]}/root
    eval "$(cat "$work/guest.values")"
    inside causeway port add guest-net --kind net --group blue --vm guest >/dev/null
    inside causeway port add guest-net2 --kind net --group blue --vm guest >/dev/null
    inside causeway port add guest-vsock --kind vsock --group blue --cid 7 \
        --host-socket /run/causeway/guest.vsock >/dev/null
    inside causeway vm show guest --for qemu --memory 256M --lines \
        --qemu-version "$("$qemu" --version | sed -n 's/.*version \([0-9.]*\).*/\1/p')" >"$work/guest.arguments" 2>"$work/guest.log" ||
        fail "causeway vm show: $(cat "$work/guest.log")"
    # The sockets are in the file system of the container.
    sed -i "/^#/d; s|/run/causeway/|$at/run/causeway/|" "$work/guest.arguments"
    mapfile -t arguments <"$work/guest.arguments"
    : >"$guest_console"
    "$qemu" -name guest -nodefaults -no-user-config -display none -accel "$accel" "${arguments[@]}" \
        -kernel "$kernel" -initrd "$work/guest.cpio" \
        -append "console=ttyS0 quiet no_timer_check mitigations=off init_on_alloc=0 rdinit=/guest-init" \
        -serial "file:$guest_console" >"$work/guest.log" 2>&1 </dev/null &
    guest_process=$!
}

# Prints the number of answers that the guest received.
guest_numbers() {
    sed -n 's/^guest: number \([0-9]*\).*/\1/p' "$guest_console" | tail -n 1
}

# guest_goes_on SECONDS: waits until the guest has received ten further answers over its TCP
# connection, and checks a new connection to its shell by the host socket.
guest_goes_on() {
    local first end=$((SECONDS + $1)) found
    first=$(guest_numbers)
    while [ "$(guest_numbers)" -lt $((${first:-0} + 10)) ] 2>/dev/null || [ -z "$(guest_numbers)" ]; do
        kill -0 "$guest_process" 2>/dev/null || fail "QEMU ended: $(cat "$work/guest.log")"
        [ $SECONDS -lt $end ] || fail "the guest receives no answers: $(tail -n 20 "$guest_console")"
        sleep 0.2
    done
    ! grep 'guest: FAILED' "$guest_console" || fail "the guest's connection: $(tail -n 5 "$guest_console")"
    found=$(echo 'echo $((20 + 22)); exit' | inside timeout 60 causeway forward --stdio vsock:guest-vsock:5000 2>&1) ||
        fail "the guest's shell: $found"
    [[ $found == *42* ]] || fail "the guest's shell answers: $found"
}

# Ends the guest.
guest_stop() {
    [ -n "$guest_process" ] || return 0
    kill "$guest_process" 2>/dev/null || true
    wait "$guest_process" 2>/dev/null || true
    guest_process=''
}
