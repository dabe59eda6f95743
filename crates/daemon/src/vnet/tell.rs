//! What VNET/U's servers say to each other: a link that is made at one end is made at the other too.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::print;
use super::speech::{Command, Secret, VERSION};
use crate::limits::{VNET_LINE_BYTES_MAX, VNET_TELL_TIME_MAX};

/// Says one command to the server at that address, which wants that password; the error is what it
/// answered, or why there was no answer.
pub type Teller = fn(SocketAddr, &Secret, Command) -> Result<(), String>;

/// See [`Teller`]: over TCP, within [`VNET_TELL_TIME_MAX`].
///
/// # Errors
/// As there.
pub fn tell(at: SocketAddr, password: &Secret, command: Command) -> Result<(), String> {
    let then = Some(Box::new(command));
    let (password, version) = (password.clone(), VERSION.to_owned());
    let line = print::line(&Command::Hello { password, version, then });
    let answer = ask(at, &line).map_err(|error| format!("{at}: {error}"))?;
    if answer.starts_with("OK") {
        return Ok(());
    }
    let answer = answer.strip_prefix("ERROR ").unwrap_or(&answer);
    Err(format!("{at} answers: {}", if answer.is_empty() { "nothing" } else { answer }))
}

/// The first line that comes back.
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
    // From the network, and shown to people.
    let text = answer.split(|b| *b == b'\n').next().unwrap_or_default();
    Ok(text.iter().filter(|b| matches!(b, b' '..=b'~')).map(|b| char::from(*b)).collect())
}
