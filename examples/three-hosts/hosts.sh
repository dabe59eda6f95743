# Functions of three-hosts/run: hosts, etcd, and guests on hosts. A host is a network namespace and a host name;
# both are files in $folder/HOST, to which namespaces are mounted. The script runs in a mount namespace
# of its own, so that all namespaces disappear with its last process.
# shellcheck shell=bash disable=SC2154 # variables of the script

limit=$boot_seconds
daemons=() directories=() etcd=''
etcd_url=http://10.9.0.10:2379
declare -A host_of=() pid_of=()

# enter_namespaces ARGUMENT...: runs the script again, with a network and mounts of its own. What
# needs the network of this machine is done before.
enter_namespaces() {
    local user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    command -v etcd >/dev/null || die "etcd is missing: install etcd-server"
    unshare "${user[@]}" --net --mount --uts true ||
        die "no namespaces: run the example as root, or where user namespaces are allowed"
    export CAUSEWAY_THREE_HOSTS=inside PATH="$bin:$PATH" bin kernel release initramfs qemu accel
    exec unshare "${user[@]}" --net --mount --uts "$here/run" "$@"
}

# finish STATUS: ends the processes that this script started, guests first, and removes its files;
# after a failure the logs stay.
finish() {
    local status=$1 files=(host1 host2 host3 etcd guest.cpio programs added.cpio)
    local pids=("${guests[@]}" "${directories[@]}" "${daemons[@]}" $etcd)
    trap '' INT TERM HUP
    # Commands in the background, such as a ping in a guest, end with the guest.
    kill "${pids[@]}" 2>/dev/null || true
    for _ in $(seq 200); do
        kill -0 "${pids[@]}" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "${pids[@]}" 2>/dev/null || true
    wait
    umount "$folder"/*/net "$folder"/*/name 2>/dev/null || true
    cd "$folder"
    [ "$status" != 0 ] || files+=(*.log vm[12].* ping connection last .three-hosts)
    rm -rf "${files[@]}"
    [ "$status" = 0 ] || echo "three-hosts: ended with status $status; logs are in $folder" >&2
    exit "$status"
}

# until_true TEXT COMMAND...: waits until the command succeeds, and tries each `pause` seconds.
until_true() {
    local text=$1 end=$((SECONDS + limit))
    shift
    until "$@" >"$folder/last" 2>&1; do
        [ $SECONDS -lt $end ] || die "waited $limit s: $text: $(cat "$folder/last")"
        sleep "${pause:-0.05}"
    done
}

# Makes a network of three hosts and etcd's machine: a bridge in the namespace of this script.
make_network() {
    local host
    rm -rf "$folder"/{host[123],etcd}{,-*.log} "$folder"/vm[12].*
    ip link add hosts type bridge
    ip link set hosts up
    for host in host1 host2 host3 etcd; do
        mkdir -p -m 700 "$folder/$host"
        : >"$folder/$host/net"
        : >"$folder/$host/name"
        unshare --net="$folder/$host/net" --uts="$folder/$host/name" hostname "$host"
        ip link add "to-$host" type veth peer name eth0 netns "$folder/$host/net"
        ip link set "to-$host" master hosts up
        on "$host" ip link set lo up
        on "$host" ip link set eth0 up
    done
    for host in host1 host2 host3; do
        on $host ip address add "10.9.0.${host#host}/24" dev eth0
    done
    on etcd ip address add 10.9.0.10/24 dev eth0
}

# enter HOST COMMAND...: replaces this process by a command on a host. Variables name the files that a
# host of its own has in /etc/causeway, /run/causeway and /var/lib/causeway.
enter() {
    local at=$folder/$1 path=$PATH
    [ "$1" != host2 ] || [ -z "$host2" ] || path=$host2:$PATH
    shift
    exec env PATH="$path" CAUSEWAY_CONTROL="$at/control.sock" CAUSEWAY_KEY="$at/key" \
        CAUSEWAY_DIRECTORY_STATE="$at/directory" CAUSEWAY_DIRECTORY_SETTINGS="$at/directory.env" \
        nsenter --net="$at/net" --uts="$at/name" "$@"
}

# on HOST COMMAND...: runs a command on a host.
on() {
    (enter "$@")
}

# show_on HOST COMMAND...: prints the command and runs it on the host.
show_on() {
    echo "$1\$ ${*:2}"
    on "$@"
}

# start_on HOST COMMAND...: prints a command, starts it on the host, and sets `pid`.
start_on() {
    echo "$1\$ ${*:2} &"
    (enter "$@") >>"$folder/$1-$2.log" 2>&1 &
    pid=$!
}

# Starts etcd, with the data that it had.
start_etcd() {
    start_on etcd etcd --data-dir "$folder/etcd/data" \
        --listen-client-urls $etcd_url --advertise-client-urls $etcd_url
    etcd=$pid
    until_true 'etcd answers' causeway_group_list
}

causeway_group_list() {
    kill -0 "$etcd" || die "etcd ended: $(tail -n 5 "$folder/etcd-etcd.log")"
    on etcd causeway cluster group list --etcd $etcd_url
}

# Kills etcd by its process id.
stop_etcd() {
    echo "etcd\$ kill -KILL $etcd"
    kill -KILL "$etcd"
    wait "$etcd" 2>/dev/null || true
    etcd=''
}

start_daemon() {
    sed "s|/tmp/causeway/HOST|$folder/$1|" "$here/causeway.toml" >"$folder/$1/causeway.toml"
    start_on "$1" causewayd --config "$folder/$1/causeway.toml"
    daemons+=("$pid")
    until_true "causewayd of $1 answers" on "$1" causeway port list
}

# join HOST ADDRESS OPTION...: joins a host to the site.
join() {
    start_on "$1" causeway cluster join --etcd $etcd_url --site lab --endpoint "$2" "${@:3}" --run
    directories+=("$pid")
}

# sees_two HOST: succeeds if the host knows two hosts of the site, with leases.
sees_two() {
    on "$1" causeway cluster status -o json | grep '"hosts_seen": 2,'
}

# is_state HOST STATE: succeeds if the host's connection to the site has the state.
is_state() {
    on "$1" causeway cluster status -o json | grep "\"state\": \"$2\""
}

# add_guest HOST GUEST MAC CID: adds the ports of a guest.
add_guest() {
    show_on "$1" causeway port add "$2-net" --group blue --kind net --mac "$3"
    show_on "$1" causeway port add "$2-vsock" --group blue --kind vsock --cid "$4" --host-socket "$folder/$1/$2.vsock"
}

# boot HOST GUEST: starts a guest on a host, with the arguments that causeway prints.
boot() {
    local arguments
    mapfile -t arguments < <(on "$1" causeway vm show "$2" --for qemu --memory 256M --lines 2>/dev/null)
    echo "$1\$ qemu-system-x86_64 \$(causeway vm show $2 --for qemu --memory 256M --lines) ... &"
    rm -f "$folder/$2.log"
    start_guest "$2" "${arguments[@]}"
    host_of[$2]=$1 pid_of[$2]=$pid
}

# stop_guest GUEST: ends a guest at once, as a loss of its power does.
stop_guest() {
    local pid=${pid_of[$1]} index
    echo "${host_of[$1]}\$ kill $pid        # QEMU of $1"
    kill "$pid"
    wait "$pid" || true
    for index in "${!guests[@]}"; do
        [ "${guests[index]}" != "$pid" ] || unset "guests[index]"
    done
}

# in_guest GUEST COMMAND: runs a command in a guest, from the host of the guest by AF_VSOCK.
in_guest() {
    printf 'CONNECT 1000\n%s\n' "$2" |
        timeout $((outage + 300)) socat -t $((outage + 300)) - "UNIX-CONNECT:$folder/${host_of[$1]}/$1.vsock" | sed -u 1d
}

# show_in GUEST COMMAND: prints the command and runs it in the guest.
show_in() {
    echo "$1# $2"
    in_guest "$1" "$2"
}

# connect_during END: connects from vm1 to vm2 each 10 s until `SECONDS` is END, and counts `connections`;
# a connection that fails ends the run.
connect_during() {
    connections=0
    while [ $((SECONDS + 10)) -lt "$1" ]; do
        sleep 10
        echoes "line $connections" >/dev/null || die "connection $connections to vm2 failed without etcd"
        connections=$((connections + 1))
    done
}

# Moves vm2 from host2 to host3 while etcd is away. No claim reaches other hosts: vm1 reaches vm2 because
# the tunnels of the hosts report the address.
move_without_etcd() {
    local port since reached='not before etcd is back'
    title 'vm2 moves from host2 to host3 while etcd is away'
    stop_guest vm2
    for port in vm2-net vm2-vsock; do
        show_on host2 causeway port del "$port"
    done
    add_guest host3 vm2 52:54:00:00:00:02 4
    boot host3 vm2
    await vm2 'vm2: done'
    since=$SECONDS
    while [ $SECONDS -lt $((since + 30)) ]; do
        ! answers >"$folder/last" 2>&1 || { reached="after $((SECONDS - since)) s" && break; }
    done
    add_row 'a guest that moves while etcd is killed answers vm1' "$reached"
}

# answers: succeeds if vm2 answers to a ping of vm1.
answers() {
    in_guest vm1 'ping -q -c 1 -W 1 10.0.0.2' | grep ' 0% packet loss'
}

# echoes TEXT: succeeds if vm2 returns a text that vm1 sends to its socket.
echoes() {
    in_guest vm1 "echo '$1' | socat - VSOCK-CONNECT:4:5000" | grep "^$1$"
}

# has_connection HOST: succeeds if a guest of the host has a connection to vm2.
has_connection() {
    on "$1" causeway connection list | grep 'vm2-vsock:5000 .* open'
}

# place_of MAC: prints the host of an address, and the time at which its guest appeared there, in ns
# since 1970, as host1 knows them.
place_of() {
    on host1 causeway cluster addresses -o json | tr -d ' "\n' | tr '{' '\n' |
        sed -n "/address:$1/s/.*epoch:\([0-9]*\).*host:\([a-z0-9]*\).*/\2 \1/p"
}

# is_at MAC HOST: succeeds if host1 knows the address at the host, and sets `epoch` and the time `seen`.
is_at() {
    local host
    read -r host epoch <<<"$(place_of "$1")"
    seen=$(date +%s%N)
    [ "$host" = "$2" ]
}

# Prints the largest number of packets that the ping sent between two answers.
longest_gap() {
    sed -n 's/.* seq=\([0-9]*\) .*/\1/p' "$folder/ping" |
        awk 'NR > 1 && $1 - last > gap { gap = $1 - last } { last = $1 } END { print gap + 0 }'
}

# has_gap: succeeds if the ping was answered after it was not for 0.5 s.
has_gap() {
    [ "$(longest_gap)" -ge 5 ]
}

# Leaves all running until a key is pressed.
keep() {
    local guest user=''
    [ "$(awk 'NR == 1 { print $3 }' /proc/self/uid_map)" = 4294967295 ] || user='--user --preserve-credentials '
    echo
    echo 'A shell in each guest, which Ctrl-] leaves:'
    for guest in vm1 vm2; do
        echo "  socat -,raw,echo=0,escape=0x1d UNIX-CONNECT:$folder/$guest.console"
    done
    echo 'A host, for example host1:'
    echo "  export CAUSEWAY_CONTROL=$folder/host1/control.sock PATH=$bin:\$PATH"
    echo "  nsenter --target ${daemons[0]} $user--mount --net --uts"
    read -rsn 1 -p 'Press a key to end all. '
    echo
}
