//! What is said on standard error, to whoever asked for it as libfabric's users do.
//!
//! The core's own log cannot be reached from a provider that lies outside of it, wherever the
//! core was loaded for a part of the process only.

use std::sync::Mutex;

use causeway_message::library::Fetched;

use crate::provider::NAME;
use crate::rdm::Account;

/// What was warned of last: it is said once, however often an application looks.
static LAST: Mutex<String> = Mutex::new(String::new());

/// The levels of `FI_LOG_LEVEL`, from the one that says least.
const LEVELS: [&str; 4] = ["warn", "trace", "info", "debug"];

/// Whether this much is to be said.
fn is_wanted(level: &str) -> bool {
    let place = |name: &str| LEVELS.iter().position(|known| name.eq_ignore_ascii_case(known));
    let asked = std::env::var("FI_LOG_LEVEL").ok();
    asked.and_then(|asked| place(&asked)).is_some_and(|asked| Some(asked) >= place(level))
}

/// Whether one of these providers, as they are named in hints and in `FI_PROVIDER`, is this.
pub fn is_us(providers: &str) -> bool {
    !providers.starts_with('^')
        && providers.split([',', ';']).any(|name| name.trim().eq_ignore_ascii_case(NAME))
}

/// Says why we are not there; always to those who want us by name.
pub fn warn(text: &str, by_name: bool) {
    let by_name = by_name || std::env::var("FI_PROVIDER").is_ok_and(|names| is_us(&names));
    if !by_name && !is_wanted("warn") {
        return;
    }
    let Ok(mut last) = LAST.lock() else { return };
    if *last != text {
        text.clone_into(&mut last);
        write("warn", text);
    }
}

/// Says what is of use to those who look closer.
pub fn inform(text: &str) {
    if is_wanted("info") {
        write("info", text);
    }
}

/// Where what an endpoint counted goes when it is closed: `stderr`, or the begin of a file's name.
const COUNTERS: &str = "FI_CAUSEWAY_COUNTERS";

/// An endpoint is closed.
pub fn account(account: &Account) {
    use std::io::Write as _;
    if is_wanted("info") {
        write("info", &account.line());
    }
    let Some(to) = std::env::var_os(COUNTERS).filter(|to| !to.is_empty()) else { return };
    let table = account.to_string();
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

/// An endpoint is closed: how large messages of this host came there.
pub fn fetched(fetched: &Fetched) {
    let Fetched { messages, helped, fell_back, refused, unknown } = *fetched;
    inform(&format!(
        "of partners on this host {messages} large messages were read out of their memory, \
         {helped} with their help; {fell_back} could not be and came through the channel; the kernel refused that for \
         {refused} partners (ptrace_scope, other rights), and {unknown} were never to be asked \
         (another user or PID namespace, CAUSEWAY_DIRECT=0)",
    ));
}

fn write(level: &str, text: &str) {
    use std::io::Write as _;
    // Nobody may be listening.
    let _ = writeln!(
        std::io::stderr(),
        "libfabric:{}:{NAME}:core:<{level}> {text}",
        std::process::id()
    );
}

#[cfg(test)]
mod tests {
    use super::is_us;

    #[test]
    fn we_are_wanted_by_name_or_not() {
        for names in ["causeway", "tcp,causeway", "Causeway", "causeway;ofi_rxm", "shm, causeway"] {
            assert!(is_us(names), "{names}");
        }
        for names in ["", "^causeway", "tcp", "causeways", "^tcp,causeway"] {
            assert!(!is_us(names), "{names}");
        }
    }
}
