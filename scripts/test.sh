#!/usr/bin/env bash
# Builds the tests of the workspace and runs the test programs several at a time.
#   usage: scripts/test.sh [--jobs J]
#   --jobs J   test programs at a time (default 2); a program has threads of its own
# `cargo test` runs the programs sequentially, and most of them wait for protocol timeouts or an
# emulated guest. Programs that measure time, or that use all processors, run alone; the longest of
# the others start first. Prints the output of a program that fails, and the slowest programs at the
# end. A single test is easier to run with cargo: cargo test -p PACKAGE --test NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

# Packages and programs ("package" or "package/program") that run alone: emulated guests use all
# processors, MPI starts many ranks, `isolation` compares round trips, and `hostile_containment` fails
# if a bystander's port stands still.
alone='^(vm|vm/.*|libfabric/mpi|libfabric/provider|daemon/isolation|daemon/hostile_containment)$'
# Programs that start first, so that none of them is the last to end.
long='^(sim/worlds|myriexpress/library|link/service)$'
slowest=12

jobs=2
case ${1:-} in
'') ;;
--jobs) jobs=${2:-} ;;
*) jobs='' ;;
esac
[[ $jobs =~ ^[1-9][0-9]*$ ]] || { echo "test: expected nothing, or --jobs J" >&2 && exit 2; }

# Prints "package-folder executable" for each test program. Tests in documentation are run by
# `cargo test --doc`.
test_programs() {
    cargo test --workspace --locked --lib --bins --tests --no-run --message-format=json |
        sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*|\1 \2|p'
}

out=${CARGO_TARGET_DIR:-target}/test-output
rm -rf "$out"
mkdir -p "$out"
out=$(realpath "$out")
mapfile -t programs < <(test_programs)
[ ${#programs[@]} -gt 0 ] || { echo "test: cargo built no test programs" >&2 && exit 1; }

# Runs one program in the folder of its package, as cargo does.
run_one() {
    local folder=$1 program=$2 name=$3 started=$SECONDS status=0
    local log="$out/${name//\//-}"
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder "$program" --quiet) >"$log" 2>&1 </dev/null || status=$?
    echo "$((SECONDS - started)) $name" >>"$out/times"
    [ $status -ne 0 ] || return 0
    echo "$name" >>"$out/failed"
    printf 'test: FAILED (status %s): %s\n' "$status" "$name"
    cat "$log"
}

# "package/program" of an executable: target/debug/deps/program-hash.
name_of() {
    local program=${2##*/}
    echo "${1##*/}/${program%-*}"
}

# Runs the programs that run beside others: first those of `long`, then the rest.
run_shared() {
    local folder program name pass line
    for pass in long rest; do
        for line in "${programs[@]}"; do
            read -r folder program <<<"$line"
            name=$(name_of "$folder" "$program")
            [[ ! $name =~ $alone && ! ${folder##*/} =~ $alone ]] || continue
            [[ $([[ $name =~ $long ]] && echo long || echo rest) == "$pass" ]] || continue
            while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
            run_one "$folder" "$program" "$name" &
        done
    done
    wait
}

run_alone() {
    local folder program name
    for line in "${programs[@]}"; do
        read -r folder program <<<"$line"
        name=$(name_of "$folder" "$program")
        [[ $name =~ $alone || ${folder##*/} =~ $alone ]] || continue
        run_one "$folder" "$program" "$name"
    done
}

echo "test: ${#programs[@]} programs, $jobs at a time"
run_shared
run_alone
echo "test: the slowest programs, in seconds"
# sed reads to the end: a pipe that closes early would end this script by SIGPIPE.
sort -rn "$out/times" | sed -n "1,${slowest}s/^/test: /p"
if [ -e "$out/failed" ]; then
    echo "test: FAILED: $(paste -sd ' ' "$out/failed")" >&2
    exit 1
fi
echo "test: all ${#programs[@]} programs passed"
