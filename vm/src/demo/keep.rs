//! `--keep`: the guests stay up, with a shell in each that the host reaches over AF_VSOCK.
//!
//! `super` calls [`hold`] after the tables, in the main thread; it returns when Enter is pressed.
//! Without a terminal only a signal ends the wait, and then the process. The server of shells must
//! listen within 20 s in each guest (times `CAUSEWAY_PATIENCE`); a server that does not ends the
//! demo with its reason. A server that ends afterwards is not noticed.

use crate::scene::Scene;
use crate::step;
use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::{CID_ANY, Target};
use causeway_vm::{Error, Result};
use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

/// AF_VSOCK port of the shells.
const SHELL_PORT: u32 = 2222;
/// Time limit until a server of shells listens.
const LIMIT: Duration = Duration::from_secs(20);

/// Starts the servers of shells, prints how to reach and to stop the guests, and waits.
pub fn hold(scene: &Scene) -> Result<()> {
    for guest in &scene.guests {
        let ran = guest.run(&["sh", "-c", &server(guest.name())], LIMIT)?;
        if ran.code != Some(0) {
            let what = format!("guest {}: no shell: {}", guest.name(), ran.stderr.trim());
            return Err(Error::Traffic { what });
        }
    }
    println!("{}", instructions(scene));
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let read = stdin.lock().read_line(&mut String::new());
        read.map_err(Error::io("read from the terminal"))?;
        step("stop the guests and causewayd");
        return Ok(());
    }
    loop {
        std::thread::park();
    }
}

/// Returns the script that starts the server of a guest's shells, in the background, and ends when
/// the server listens: the server then prints a line. The script fails, with the server's reason,
/// if the server ends before.
fn server(guest: &str) -> String {
    let target = Target::Vsock(CID_ANY, SHELL_PORT);
    format!(
        "d=$(mktemp -d) && mkfifo $d/line || exit 1\n\
         PS1='{guest}# ' setsid causeway-guest shell {target} </dev/null >$d/line 2>$d/why &\n\
         read -r line <$d/line || {{ cat $d/why >&2; exit 1; }}"
    )
}

/// Returns how to reach the guests from another terminal, what to try, and how to stop them.
fn instructions(scene: &Scene) -> String {
    let tool = scene.daemon.tool().display();
    let control = scene.daemon.control_socket();
    let mut text = format!(
        "\nThe guests stay up. In another terminal:\n\n  \
         export CAUSEWAY_CONTROL={}\n  alias causeway={tool}\n  causeway port list\n",
        control.display()
    );
    for guest in &scene.guests {
        let name = guest.name();
        let _ = writeln!(
            text,
            "  causeway forward --stdio vsock:{name}-vsock:{SHELL_PORT}    # a shell in {name}"
        );
    }
    if let [first, second, ..] = scene.members.as_slice() {
        let _ = write!(
            text,
            "\nIn the shell of {}, over Ethernet and over AF_VSOCK to {}:\n\n  \
             ping -c 3 {}\n  causeway-guest ping-pong tcp:{}:{STREAM_PORT} 64 1000 2000\n  \
             causeway-guest ping-pong vsock:{}:{STREAM_PORT} 64 1000 2000\n",
            first.name,
            second.name,
            second.ip(),
            second.ip(),
            second.cid
        );
    }
    let stop = format!("kill {}", std::process::id());
    if std::io::stdin().is_terminal() {
        let _ = write!(text, "\nTo stop all: press Enter here, or `{stop}`.");
    } else {
        let _ = write!(text, "\nTo stop all: `{stop}`.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_vm::{RunDir, process};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Output;

    /// Runs the script on this machine, with this script of a shell as the server.
    fn start(dir: &RunDir, server_script: &str) -> Output {
        let program = dir.join("causeway-guest");
        fs::write(&program, format!("#!/bin/sh\n{server_script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let mut script = process::tied("timeout");
        script.args(["60", "sh", "-c", &server("vm1")]);
        script.env("PATH", path).env("TMPDIR", dir.path()).output().unwrap()
    }

    #[test]
    fn keep_notices_a_server_of_shells_that_cannot_listen() {
        let dir = RunDir::new().unwrap();
        let ended = start(&dir, "echo 'listen on $2: in use' >&2; exit 1");
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), "listen on $2: in use\n");
    }

    #[test]
    fn keep_leaves_a_server_of_shells_that_listens_running() {
        let dir = RunDir::new().unwrap();
        let ended = start(&dir, "echo $$ >\"${0%/*}/id\"; echo '{}'; exec sleep 60");
        let id = fs::read_to_string(dir.join("id")).unwrap();
        let killed = process::output(process::tied("kill").arg(id.trim()));
        assert!(ended.status.success(), "{ended:?}");
        killed.unwrap();
    }
}
