#!/usr/bin/env bash
# The compiler of `scripts/fuzz.sh --quick`, as RUSTC_WORKSPACE_WRAPPER: cargo gives the compiler and
# its arguments for each crate of the workspace. Adds the coverage of libFuzzer, except to programs
# that run during the build.
case " $* " in
*' --crate-name build_script_'* | *' --crate-type proc-macro '*) exec "$@" ;;
esac
# shellcheck disable=SC2086 # options
exec "$@" ${CAUSEWAY_FUZZ_FLAGS:?}
