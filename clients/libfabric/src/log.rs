//! Diagnostics on standard error, at the level that `FI_LOG_LEVEL` requests, and endpoint counters
//! where `FI_CAUSEWAY_COUNTERS` names a destination.
//!
//! A provider outside libfabric's tree cannot reach the core's own log if the core was loaded for
//! only a part of the process, so this module writes by itself. It never fails an operation.
//!
//! Warnings are written at every level of `FI_LOG_LEVEL` (`warn`, `trace`, `info`, `debug`).
//! Without a level, or with an unknown one, they are written if the application selects this
//! provider by name, or if the caller passes `by_name`, as `rdm` and `shell` do for losses and
//! limits. Lines of level `info` need the level `info` or `debug`. A warning that equals the last
//! one is not repeated; otherwise nothing is rate-limited. Counters are appended to a file per
//! process, `<prefix>.<pid>`; a file that cannot be written gives a warning at any level. If
//! standard error is closed, lines are lost. `info`, `rdm` and `shell` call the functions from any
//! thread, and `rdm` under the lock of the domain: while standard error blocks, so do all calls on
//! the domain.

use std::fmt::Display;
use std::sync::Mutex;

use crate::identity::NAME;

/// The last warning. A warning is not repeated if an application polls for its cause.
static LAST: Mutex<String> = Mutex::new(String::new());

/// The levels of `FI_LOG_LEVEL`, by increasing verbosity.
const LEVELS: [&str; 4] = ["warn", "trace", "info", "debug"];

/// Returns whether `FI_LOG_LEVEL` includes a level.
fn is_wanted(level: &str) -> bool {
    let position = |name: &str| LEVELS.iter().position(|known| name.eq_ignore_ascii_case(known));
    let requested = std::env::var("FI_LOG_LEVEL").ok();
    requested
        .and_then(|requested| position(&requested))
        .is_some_and(|requested| Some(requested) >= position(level))
}

/// Returns whether a list of providers, in the form of hints and `FI_PROVIDER`, names this
/// provider.
pub fn names_this_provider(providers: &str) -> bool {
    !providers.starts_with('^')
        && providers.split([',', ';']).any(|name| name.trim().eq_ignore_ascii_case(NAME))
}

/// Writes a warning if the level includes warnings, if the application selects this provider by
/// name in `FI_PROVIDER`, or if `by_name`: it does so in its hints, or the warning concerns a loss
/// or a limit.
pub fn warn(text: &str, by_name: bool) {
    let by_name =
        by_name || std::env::var("FI_PROVIDER").is_ok_and(|names| names_this_provider(&names));
    if !by_name && !is_wanted("warn") {
        return;
    }
    let Ok(mut last) = LAST.lock() else { return };
    if *last != text {
        text.clone_into(&mut last);
        write("warn", text);
    }
}

/// Writes a line of level `info`.
pub fn info(text: &str) {
    if is_wanted("info") {
        write("info", text);
    }
}

/// The destination of endpoint counters: `stderr`, or the prefix of a file name.
const COUNTERS: &str = "FI_CAUSEWAY_COUNTERS";

/// Appends a table of counters to the destination that `FI_CAUSEWAY_COUNTERS` names, if any.
pub fn append_counters(table: &impl Display) {
    use std::io::Write as _;
    let Some(to) = std::env::var_os(COUNTERS).filter(|to| !to.is_empty()) else { return };
    let table = table.to_string();
    if to == "stderr" {
        let _ = std::io::stderr().write_all(table.as_bytes());
        return;
    }
    let mut path = to;
    path.push(format!(".{}", std::process::id()));
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(table.as_bytes())) {
        write("warn", &format!("{COUNTERS}: {}: {error}", path.display()));
    }
}

/// Writes a line in the format of libfabric's log.
fn write(level: &str, text: &str) {
    use std::io::Write as _;
    // Standard error may be closed.
    let _ = writeln!(
        std::io::stderr(),
        "libfabric:{}:{NAME}:core:<{level}> {text}",
        std::process::id()
    );
}

#[cfg(test)]
mod tests {
    use super::names_this_provider;

    #[test]
    fn log_recognises_the_provider_in_lists_of_names() {
        for names in ["causeway", "tcp,causeway", "Causeway", "causeway;ofi_rxm", "shm, causeway"] {
            assert!(names_this_provider(names), "{names}");
        }
        for names in ["", "^causeway", "tcp", "causeways", "^tcp,causeway"] {
            assert!(!names_this_provider(names), "{names}");
        }
    }
}
