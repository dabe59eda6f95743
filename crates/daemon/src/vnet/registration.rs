//! Registers links with peers' servers, as VNET/U's servers do: a link created at one end is
//! created at the other.
//!
//! [`register`] connects to the VNET server of the peer, sends `HELLO` with `REGISTERLINK` or
//! `DEREGISTERLINK` on the same line, and reads the first line of the answer, of which printable
//! ASCII is kept. The read ends once [`VNET_LINE_BYTES_MAX`] (256) bytes are there, with or without
//! a line feed. It blocks its thread for at most [`VNET_TELL_TIME_MAX`] (3 s).
//!
//! It is attempted once and not repeated: an error leaves the peer's end in an unknown state, and
//! the caller decides about this end. The connection is plain TCP: the password is readable on the
//! network. Only UDP links are registered.
//!
//! [`super::session`] calls it through [`RegisterFn`] on the thread of the client's session; tests
//! replace the function.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::command::{Secret, VERSION, VnetCommand};
use super::print;
use crate::limits::{VNET_LINE_BYTES_MAX, VNET_TELL_TIME_MAX};

/// Sends a command to the server at an address, with that server's password. The error is the
/// server's answer, or the reason why there is none.
pub type RegisterFn = fn(SocketAddr, &Secret, VnetCommand) -> Result<(), String>;

/// The [`RegisterFn`] over TCP. Takes at most [`VNET_TELL_TIME_MAX`] (3 s).
///
/// # Errors
/// The connection fails or times out, or the server's answer is no `OK`.
pub fn register(at: SocketAddr, password: &Secret, command: VnetCommand) -> Result<(), String> {
    let then = Some(Box::new(command));
    let (password, version) = (password.clone(), VERSION.to_owned());
    let line = print::line(&VnetCommand::Hello { password, version, then });
    let answer = ask(at, &line).map_err(|error| format!("{at}: {error}"))?;
    if answer.starts_with("OK") {
        return Ok(());
    }
    let answer = answer.strip_prefix("ERROR ").unwrap_or(&answer);
    Err(format!("{at} answers: {}", if answer.is_empty() { "nothing" } else { answer }))
}

/// Sends a line and returns the first line of the answer.
fn ask(at: SocketAddr, line: &str) -> std::io::Result<String> {
    let until = Instant::now() + VNET_TELL_TIME_MAX;
    let left = || {
        let left = until.saturating_duration_since(Instant::now());
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        if left.is_zero() { Err(late()) } else { Ok(left) }
    };
    let mut stream = TcpStream::connect_timeout(&at, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let (mut answer, mut bytes) = (Vec::new(), [0; VNET_LINE_BYTES_MAX]);
    while !answer.contains(&b'\n') && answer.len() < VNET_LINE_BYTES_MAX {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut bytes)? {
            0 => break,
            len => answer.extend(bytes.iter().take(len)),
        }
    }
    // The answer comes from the network and is printed: keep printable ASCII only.
    let text = answer.split(|b| *b == b'\n').next().unwrap_or_default();
    Ok(text.iter().filter(|b| matches!(b, b' '..=b'~')).map(|b| char::from(*b)).collect())
}
