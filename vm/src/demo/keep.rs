//! `--keep`: the guests stay up, with a shell in each that the host reaches over AF_VSOCK.
//!
//! `super` calls [`hold`] after the tables, in the main thread; it returns when Enter is pressed.
//! Without a terminal only a signal ends the wait, and then the process. The command that starts
//! the server of shells may take 20 s in each guest (times `CAUSEWAY_PATIENCE`), and ends the demo
//! with its reason if it fails; a server that ends afterwards is not noticed.

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
/// Time limit of the command that starts a shell's server.
const LIMIT: Duration = Duration::from_secs(20);

/// Starts the servers of shells, prints how to reach and to stop the guests, and waits.
pub fn hold(scene: &Scene) -> Result<()> {
    for guest in &scene.guests {
        let target = Target::Vsock(CID_ANY, SHELL_PORT);
        let script = format!(
            "PS1='{}# ' setsid causeway-guest shell {target} </dev/null >/dev/null 2>&1 &",
            guest.name()
        );
        let ran = guest.run(&["sh", "-c", &script], LIMIT)?;
        if ran.code != Some(0) {
            let what = format!("guest {}: no shell: {}", guest.name(), ran.stderr);
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
