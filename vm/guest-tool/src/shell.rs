//! A shell for each connection, without any authentication: for test guests, in which an operator
//! looks around.
//!
//! The shell's standard streams are the connection. There is no terminal, so that programs with a
//! full screen do not run. The demo starts it in its guests (`--keep`), and so does the guest of
//! the checks of packages (`scripts/package-guest.sh`). A shell ends by itself, or when it reads
//! the end of its connection, which a running command delays. The number of shells and their time
//! have no limit. A failed accept ends [`serve`].

use socket2::Socket;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;

/// Serves shells on connections of `listener` until an accept fails.
///
/// # Errors
/// When an accept fails; a shell that cannot be started only ends its connection, with a line on
/// standard error.
pub fn serve(listener: &Socket) -> io::Result<Infallible> {
    loop {
        let (socket, _) = listener.accept()?;
        if let Err(error) = start(OwnedFd::from(socket)) {
            eprintln!("causeway-guest: cannot start a shell: {error}");
        }
    }
}

/// Starts a shell on a connection, and a thread that waits for its end.
fn start(connection: OwnedFd) -> io::Result<()> {
    let (input, output) = (connection.try_clone()?, connection.try_clone()?);
    let mut shell = Command::new("sh");
    shell.arg("-i").stdin(Stdio::from(input)).stdout(Stdio::from(output));
    let mut shell = shell.stderr(Stdio::from(connection)).spawn()?;
    thread::Builder::new().spawn(move || shell.wait())?;
    Ok(())
}
