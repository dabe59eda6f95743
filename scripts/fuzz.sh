#!/usr/bin/env bash
# Runs the fuzz targets under libFuzzer, on stable Rust.
#   --target NAME   only this target; may be given several times (default: all)
#   --seconds N     per target (default: an hour over all)
#   --jobs J        targets at a time (default: number of processors)
#   --asan          with the address sanitizer
#   --build         builds the targets and runs none
#   --quick         in the profile of the tests, whose compiled dependencies are used: coverage of the
#                   crates of this workspace only
# New inputs are stored in $CARGO_TARGET_DIR/fuzz-corpus, beside the committed corpus; crashing
# inputs in $CARGO_TARGET_DIR/fuzz-found. The output has the command that replays such an input.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

die() {
    printf 'fuzz: %s\n' "$@" >&2
    exit 2
}

out=${CARGO_TARGET_DIR:-target}
chosen=() seconds='' jobs=$(nproc) asan='' build_only='' quick=''
while [ $# -gt 0 ]; do
    case $1 in
    --target | --seconds | --jobs)
        [ $# -ge 2 ] || die "$1 needs a value"
        case $1 in
        --target) chosen+=("$2") ;;
        --seconds) seconds=$2 ;;
        --jobs) jobs=$2 ;;
        esac
        shift 2
        ;;
    --asan) asan=yes && shift ;;
    --build) build_only=yes && shift ;;
    --quick) quick=yes && shift ;;
    *) die "unknown option $1; expected --target NAME, --seconds N, --jobs J, --asan, --build or --quick" ;;
    esac
done
[[ $seconds =~ ^[0-9]*$ && $jobs =~ ^[1-9][0-9]*$ ]] || die "--seconds and --jobs take whole numbers"

# Coverage by the compiler's own pass; a target triple keeps build scripts without it.
host=$(rustc -vV | sed -n 's/^host: //p')
flags='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
flags+=' -Cllvm-args=-sanitizer-coverage-inline-8bit-counters'
flags+=' -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares'
flags+=' -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Coverflow-checks -Cdebug-assertions'

# Prints the path of the fuzzer after a build without LTO: the fuzzer needs coverage, not speed.
build_full() {
    local build=$out/fuzz-build
    if [ -n "$asan" ]; then
        export RUSTC_BOOTSTRAP=1
        flags+=' -Zsanitizer=address'
        build=$out/fuzz-build-asan
    fi
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 RUSTFLAGS="$flags" \
        CARGO_TARGET_DIR="$build" cargo build --quiet --locked --release \
        --target "$host" -p causeway-fuzz --features libfuzzer --bin causeway-fuzzer
    echo "$build/$host/release/causeway-fuzzer"
}

# As `build_full`, in a folder of its own that begins with links to the compiled dependencies of the
# tests: libraries of the C interface have the same file names in both builds.
build_quick() {
    local build=$out/fuzz-quick from=$out/debug
    if [ ! -e "$build" ] && [ -d "$from/deps" ]; then
        rm -rf "$build.new"
        mkdir -p "$build.new/debug/deps"
        cp -al "$from/.fingerprint" "$from/build" "$build.new/debug/"
        find "$from/deps" \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' -o -name '*.d' \) \
            -exec cp -al -t "$build.new/debug/deps" {} +
        mv "$build.new" "$build"
    fi
    CAUSEWAY_FUZZ_FLAGS=$flags RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/fuzz-rustc.sh \
        CARGO_TARGET_DIR="$build" cargo build --quiet --locked --workspace \
        --features causeway-fuzz/libfuzzer --bin causeway-fuzzer
    echo "$build/debug/causeway-fuzzer"
}

[ -z "$quick" ] || [ -z "$asan" ] || die "--quick has no address sanitizer"
echo "fuzz: building"
if [ -n "$quick" ]; then fuzzer=$(build_quick); else fuzzer=$(build_full); fi
[ -z "$build_only" ] || exit 0

list=$(CAUSEWAY_FUZZ_TARGET=list "$fuzzer")
all=$(cut -d ' ' -f 1 <<<"$list")
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen <<<"$all"
for target in "${chosen[@]}"; do
    grep -qx "$target" <<<"$all" || die "no target $target; expected one of" "$all"
done
[ -n "$seconds" ] || seconds=$((3600 * jobs / ${#chosen[@]} + 1))
echo "fuzz: ${#chosen[@]} targets, $seconds s each, $jobs at a time"

# Runs one target and prints a line with its result.
fuzz_one() {
    local target=$1 corpus found log status=0 timeout=20
    corpus="$out/fuzz-corpus/$target" found="$out/fuzz-found/$target"
    log="$out/fuzz-found/$target.log"
    mkdir -p "$corpus" "$found"
    # CI fuzzes on processors that nothing else uses, where an input may take minutes.
    [ -z "$quick" ] || timeout=300
    # The memory limit is libFuzzer's default; the code under test handles SIGBUS itself.
    CAUSEWAY_FUZZ_TARGET=$target "$fuzzer" "$corpus" "fuzz/corpus/$target" \
        -max_total_time="$seconds" -timeout="$timeout" -rss_limit_mb=2048 -handle_bus=0 \
        -max_len="$(sed -n "s/^$target //p" <<<"$list")" -print_final_stats=1 \
        -artifact_prefix="$found/" >"$log" 2>&1 || status=$?
    local execs rate new coverage
    execs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    new=$(sed -n 's/^stat::new_units_added: *//p' "$log")
    coverage=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)
    printf 'fuzz: %-12s %10s execs %7s/s  %s  %s new inputs  %s\n' "$target" "${execs:-?}" \
        "${rate:-?}" "${coverage:-no coverage}" "${new:-?}" \
        "$([ $status -eq 0 ] && echo ok || echo FOUND)"
    [ $status -ne 0 ] || return 0
    grep -E 'panicked at|ERROR|assertion|^  (left|right):' -A 1 "$log" | head -n 12 || true
    local file
    file=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    if [ -n "$file" ]; then
        echo "fuzz: the input is $file; replay it with"
        echo "    cargo run -p causeway-fuzz --bin causeway-fuzz replay $target $file"
    else
        tail -n 20 "$log"
    fi
    return 1
}

mkdir -p "$out/fuzz-found"
failed=0
for target in "${chosen[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n || failed=1
    done
    fuzz_one "$target" &
done
while [ -n "$(jobs -p)" ]; do
    wait -n || failed=1
    [ -n "$(jobs -rp)" ] || break
done
wait || failed=1
[ $failed -eq 0 ] || die "a target failed: see the lines marked FOUND"
