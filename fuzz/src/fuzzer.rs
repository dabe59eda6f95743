//! Runs a target under libFuzzer. The environment variable `CAUSEWAY_FUZZ_TARGET` selects the
//! target; `list` prints the name and the longest useful input of each target. An unknown name ends
//! the process with status 2. `scripts/fuzz.sh` builds it with stable Rust and starts one process
//! for each target; libFuzzer calls the target in the main thread, stores the input of a panic, and
//! ends the process then, after 20 s in one input, or above 2,048 MiB.
#![no_main]
#![allow(unsafe_code, reason = "libFuzzer calls an exported function")]

use std::sync::OnceLock;

use causeway_fuzz::Target;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var("CAUSEWAY_FUZZ_TARGET").unwrap_or_default();
    if name == "list" {
        for target in causeway_fuzz::TARGETS {
            println!("{} {}", target.name, target.bytes_max);
        }
        std::process::exit(0);
    }
    causeway_fuzz::find(&name).unwrap_or_else(|| {
        eprintln!("CAUSEWAY_FUZZ_TARGET={name:?}: expected one of {}", causeway_fuzz::names());
        std::process::exit(2)
    })
}

libfuzzer_sys::fuzz_target!(
    init: {
        TARGET.get_or_init(chosen);
    },
    |data: &[u8]| (TARGET.get_or_init(chosen).run)(data)
);
