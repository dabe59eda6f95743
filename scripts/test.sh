#!/usr/bin/env bash
# Builds the tests of the workspace and runs the test programs several at a time.
#   usage: scripts/test.sh [--jobs J]
#   --jobs J   test programs at a time (default 2); a program has threads of its own
# `cargo test` runs the programs sequentially, and most of them wait for protocol timeouts or an
# emulated guest. Programs that measure or poll run alone, after the others. Of the others, programs with
# guests use about a processor each and run one at a time beside the rest, then J at a time.
# Prints the output of a program that fails, and at the end the programs with the longest time, and
# with the longest time of processors. A single test is easier to run with cargo:
# cargo test -p PACKAGE --test NAME.
#
# A program that failed runs again at the end, alone: many tests wait for guests and other processes
# with time limits, and a machine that is late for one of them must not cost the run. A fault of the
# product fails twice, and a program that passed at the second try is named with its first output,
# because its limit has to be mended. When more than AGAIN_MAX programs failed, the machine is not the
# cause, and none runs again.
#
# A program that runs for more than LIMIT seconds is ended with its children, and has failed. Its
# output names the tests that ran for more than a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

# Programs as "package/program". Those that run alone: `isolation` compares round trips,
# `hostile_containment` fails if a bystander's port stands still, `rdma_restart` kills causewayd during
# an exchange of limited length, and the ranks of `mpi` poll: beside other programs they take four times
# the processors.
alone='^(vm/rdma_restart|daemon/isolation|daemon/hostile_containment|libfabric/mpi)$'
# Programs with guests or many threads.
heavy='^(vm/.*|libfabric/provider)$'
# Programs that start before others, so that none of them is the last to end.
long='^(sim/worlds|sim/suite|cli/tool|myriexpress/library|link/service|vm/rdma|vm/mx|vm/hostile|vm/rdma_.*)$'
slowest=12
AGAIN_MAX=4
LIMIT=900

# Guests share the processors with other programs.
export CAUSEWAY_PATIENCE=${CAUSEWAY_PATIENCE:-2}

jobs=2
case ${1:-} in
'') ;;
--jobs) jobs=${2:-} ;;
*) jobs='' ;;
esac
[[ $jobs =~ ^[1-9][0-9]*$ ]] || { echo "test: expected nothing, or --jobs J" >&2 && exit 2; }

# Prints "package-folder executable" for each test program. Libraries and programs with `test = false`
# have none, which `--lib` and `--bins` would ignore. Tests in documentation are run by
# `cargo test --doc`.
test_programs() {
    cargo test --workspace --locked --tests --no-run --message-format=json |
        sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*|\1 \2|p'
}

out=${CARGO_TARGET_DIR:-target}/test-output
rm -rf "$out"
mkdir -p "$out"
out=$(realpath "$out")
mapfile -t programs < <(test_programs)
[ ${#programs[@]} -gt 0 ] || { echo "test: cargo built no test programs" >&2 && exit 1; }

# Runs a program in the folder of its package, as cargo does. (A function: bash times a subshell inside
# its redirections.) `timeout` makes a process group, and ends all processes in it.
run_in() {
    (cd "$1" && CARGO_MANIFEST_DIR=$1 timeout --verbose --kill-after=30 "$LIMIT" "$2" --quiet)
}

# Runs one program; its output goes to a file with the suffix $4. Adds "seconds cpu-seconds name" to
# the table; the processor time is that of the program and the children that it waited for. Adds the
# words of a program that fails to the list `failed` with the same suffix.
run_one() {
    local folder=$1 program=$2 name=$3 suffix=${4:-} status=0
    local log="$out/${name//\//-}$suffix" TIMEFORMAT='%0R %U %S'
    { time run_in "$folder" "$program" >"$log" 2>&1 </dev/null; } 2>"$log.time" || status=$?
    awk -v name="$name" '{ printf "%d %.0f %s\n", $1, $2 + $3, name }' "$log.time" >>"$out/times"
    rm "$log.time"
    [ $status -ne 0 ] || return 0
    echo "$folder $program $name" >>"$out/failed$suffix"
    printf 'test: FAILED (status %s): %s\n' "$status" "$name"
    cat "$log"
}

# Runs the programs that failed again, and prints those that pass now. Succeeds if all do.
run_again() {
    local failed line name
    [ -e "$out/failed" ] || return 0
    mapfile -t failed <"$out/failed"
    if [ ${#failed[@]} -gt $AGAIN_MAX ]; then
        echo "test: ${#failed[@]} programs failed, more than $AGAIN_MAX: none runs again"
        mv "$out/failed" "$out/failed.again"
        return 1
    fi
    for line in "${failed[@]}"; do
        name=${line##* }
        echo "test: $name runs again, alone"
        # shellcheck disable=SC2086 # three words
        run_one $line .again
        ! grep -qsxF "$line" "$out/failed.again" || continue
        echo "test: LATE: $name passed at the second try, alone; the output of the first:"
        cat "$out/${name//\//-}"
    done
    [ ! -e "$out/failed.again" ]
}

# "package/program" of an executable: target/debug/deps/program-hash.
name_of() {
    local program=${2##*/}
    echo "${1##*/}/${program%-*}"
}

# Sorts the programs into the lists of lines "folder program name" by the three patterns.
sort_programs() {
    local folder program name line pass
    for pass in long rest; do
        for line in "${programs[@]}"; do
            read -r folder program <<<"$line"
            name=$(name_of "$folder" "$program")
            [[ $([[ $name =~ $long ]] && echo long || echo rest) == "$pass" ]] || continue
            if [[ $name =~ $alone ]]; then
                alone_list+=("$line $name")
            elif [[ $name =~ $heavy ]]; then
                heavy_list+=("$line $name")
            else
                light_list+=("$line $name")
            fi
        done
    done
}

# Runs the programs of both lists: a heavy one beside light ones while there are any.
run_shared() {
    local heavy_pid='' running=0 ended line
    while [ ${#heavy_list[@]} -gt 0 ] || [ ${#light_list[@]} -gt 0 ]; do
        if [ "$running" -ge "$jobs" ]; then
            ended=''
            wait -n -p ended || true
            running=$((running - 1))
            [ "$ended" != "$heavy_pid" ] || heavy_pid=''
        fi
        if [ ${#light_list[@]} -eq 0 ] || { [ -z "$heavy_pid" ] && [ ${#heavy_list[@]} -gt 0 ]; }; then
            line=${heavy_list[0]} heavy_list=("${heavy_list[@]:1}")
            # shellcheck disable=SC2086 # three words
            run_one $line &
            heavy_pid=$!
        else
            line=${light_list[0]} light_list=("${light_list[@]:1}")
            # shellcheck disable=SC2086 # three words
            run_one $line &
        fi
        running=$((running + 1))
    done
    wait
}

run_alone() {
    local line
    for line in "${alone_list[@]}"; do
        # shellcheck disable=SC2086 # three words
        run_one $line
    done
}

# Prints the programs that passed at the second try only, if any.
late() {
    [ ! -e "$out/failed" ] || printf ', LATE: %s' "$(cut -d ' ' -f 3 "$out/failed" | paste -sd ' ')"
}

# Prints the programs with the greatest numbers in column $1 of the table.
print_slowest() {
    # sed reads to the end: a pipe that closes early would end this script by SIGPIPE.
    sort -rn -k "$1,$1" "$out/times" | sed -n "1,${slowest}s/^/test: /p"
}

alone_list=() heavy_list=() light_list=()
sort_programs
echo "test: ${#programs[@]} programs, $jobs at a time"
run_shared
run_alone
passed=yes
run_again || passed=''
echo "test: the longest programs: seconds, seconds of processors, program"
print_slowest 1
echo "test: the programs with the most time of processors"
print_slowest 2
awk '{ cpu += $2 } END { printf "test: %d s of processors in %d s\n", cpu, '"$SECONDS"' }' "$out/times"
if [ -z "$passed" ]; then
    echo "test: FAILED: $(cut -d ' ' -f 3 "$out/failed.again" | paste -sd ' ')" >&2
    exit 1
fi
echo "test: all ${#programs[@]} programs passed$(late)"
