#!/usr/bin/env bash
# Runs tests under the address sanitizer (crates that access shared memory or parse untrusted input)
# and under the thread sanitizer (crates with shared state between threads). A sanitizer that the
# toolchain lacks is skipped with a message. The client libraries run only their unit tests: C
# programs that load them would also have to be built with the sanitizer. Excluded are wire, which
# has no unsafe code and accesses only its arguments, and daemon, cli and vm, which run programs.
#   --only address|thread   only this sanitizer
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

only=''
case ${1:-} in
'') ;;
--only) only=${2:-} ;;
*) echo "sanitize: expected nothing, or --only address|thread" >&2 && exit 2 ;;
esac
out=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
failed=0
skipped=()

# run SANITIZER TOOLCHAIN KINDS PACKAGE...   KINDS: cargo's options that select tests
run() {
    local sanitizer=$1 toolchain=$2 kinds=$3
    shift 3
    local packages=()
    for package in "$@"; do packages+=(-p "causeway-$package"); done
    echo "sanitize: $sanitizer: $*"
    # RUSTC_BOOTSTRAP permits unstable flags on the stable compiler.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer" \
        CARGO_TARGET_DIR="$out/sanitize-$sanitizer" \
        cargo $toolchain test --quiet --locked --no-fail-fast --target "$host" $kinds "${packages[@]}" \
        -- "${skipped[@]}" ||
        { echo "sanitize: $sanitizer: FAILED" >&2 && failed=1; }
}

# has RUNTIME TOOLCHAIN: true if the toolchain has the sanitizer's runtime.
has() {
    local sysroot
    sysroot=$(rustc $2 --print sysroot 2>/dev/null) &&
        compgen -G "$sysroot/lib/rustlib/$host/lib/librustc-*_rt.$1.a" >/dev/null
}

if [ -z "$only" ] || [ "$only" = address ]; then
    if has asan ''; then
        # Threads that outlive a test keep their memory, which the leak check would report.
        # The daemon's own handler recovers from SIGBUS, which is therefore no crash.
        export ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:allow_user_segv_handler=1
        run address '' '--lib --tests' memory host ring channel attach fabric ethernet socket link message mx \
            verbs mlx5 hca stream tap holder
        run address '' --lib endpoint myriexpress fi
    else
        echo "sanitize: address: skipped: this toolchain has no runtime for the sanitizer"
    fi
fi
if [ -z "$only" ] || [ "$only" = thread ]; then
    # In an uninstrumented standard library every lock and channel is reported as a race. The
    # library is therefore built too, which requires its sources and a nightly compiler.
    sources=$(rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/Cargo.lock
    if has tsan +nightly && [ -f "$sources" ]; then
        export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.txt handle_sigbus=0"
        export CARGO_UNSTABLE_BUILD_STD=std,panic_abort,test
        # In the first test the page is lost during an atomic access, where the sanitizer holds a
        # lock that the SIGBUS handler's own accesses take again. In the second, most addresses
        # belong to the sanitizer.
        skipped=(--skip hostile_logs_are_refused_and_their_loss_is_found
            --skip hostile_grants_of_all_addresses_leave_others_theirs)
        run thread +nightly '--lib --tests' ring attach fabric endpoint
        # The crate's other tests have a single thread and simulate long scenarios.
        run thread +nightly '--lib --test library_channels' message
    else
        echo "sanitize: thread: skipped: the sanitizer needs a nightly compiler and the sources of the" \
            "standard library (rustup component add rust-src --toolchain nightly)"
    fi
fi
exit $failed
