#!/usr/bin/env bash
# Runs the tests of the crates that reach memory which others write, or whose input strangers send,
# under the address sanitizer, and of those where threads meet under the thread sanitizer. What the
# toolchain lacks is skipped with a word. Of the libraries of processes it is the unit tests: C
# programs that load them would have to be built with the sanitizer too. Left out are wire, which
# has no unsafe code and no memory but its arguments, and daemon, cli and vm, which run programs.
#   --only address|thread   one of the two
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

# run SANITIZER TOOLCHAIN KINDS PACKAGE...   KINDS: which tests, as cargo's options
run() {
    local sanitizer=$1 toolchain=$2 kinds=$3
    shift 3
    local packages=()
    for package in "$@"; do packages+=(-p "causeway-$package"); done
    echo "sanitize: $sanitizer: $*"
    # Unstable flags are what RUSTC_BOOTSTRAP is for, on the stable compiler too.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer" \
        CARGO_TARGET_DIR="$out/sanitize-$sanitizer" \
        cargo $toolchain test --quiet --locked --no-fail-fast --target "$host" $kinds "${packages[@]}" \
        -- "${skipped[@]}" ||
        { echo "sanitize: $sanitizer: FAILED" >&2 && failed=1; }
}

# Whether the toolchain has the sanitizer's runtime.
has() {
    local sysroot
    sysroot=$(rustc $2 --print sysroot 2>/dev/null) &&
        compgen -G "$sysroot/lib/rustlib/$host/lib/librustc-*_rt.$1.a" >/dev/null
}

if [ -z "$only" ] || [ "$only" = address ]; then
    if has asan ''; then
        # Threads that outlive a test keep what they own: leaks are looked for elsewhere.
        # Our own handler recovers from SIGBUS; it must not be taken for a crash.
        export ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:allow_user_segv_handler=1
        run address '' '--lib --tests' memory host ring attach fabric ethernet socket link message mx holder
        run address '' --lib endpoint myriexpress fi
    else
        echo "sanitize: address: skipped: this toolchain has no runtime for it"
    fi
fi
if [ -z "$only" ] || [ "$only" = thread ]; then
    # With a standard library that was not built for it, every lock and channel of its own looks
    # like a race: it has to be built too, which takes its sources and a nightly compiler.
    sources=$(rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/Cargo.lock
    if has tsan +nightly && [ -f "$sources" ]; then
        export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.txt handle_sigbus=0"
        export CARGO_UNSTABLE_BUILD_STD=std,panic_abort,test
        # The page is lost in the middle of an atomic access, where this sanitizer holds a lock that
        # our handler's own accesses take again; and most addresses are the sanitizer's.
        skipped=(--skip hostile_logs_are_refused_and_their_loss_is_found
            --skip hostile_grants_of_all_addresses_leave_others_theirs)
        run thread +nightly '--lib --tests' ring attach fabric endpoint
        # All others of this crate have one thread, and play worlds for long.
        run thread +nightly '--lib --test library_channels' message
    else
        echo "sanitize: thread: skipped: it needs a nightly compiler and the sources of the" \
            "standard library (rustup component add rust-src --toolchain nightly)"
    fi
fi
exit $failed
