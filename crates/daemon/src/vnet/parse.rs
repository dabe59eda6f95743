//! Parses a line of the VNET language into a command; the first stage after the bytes of a line are
//! complete.
//!
//! [`parse`] is a pure function: it resolves no host, checks no password and knows no link or
//! route. It accepts printable ASCII and tabs, at most [`VNET_LINE_BYTES_MAX`] (256) bytes without
//! the line end, and reports the first problem only. Keywords are case-insensitive; names and
//! passwords keep their case. A line begins with a word that [`SyntaxError::Unknown`] lists;
//! `DEVICES?` is `LIST DEVICES`. Words cannot be quoted, so that no name or password
//! contains a blank. The language itself is described in [`crate::vnet`]; `vnet::print::line` is
//! the inverse.
//!
//! Callers are [`super::session`] for lines of a client, which are hostile input, in the thread
//! `vnet-session` of its connection, and [`super::file`](mod@super::file) for lines of a file: of
//! `vnet_file` in the thread `lifecycle`, of `POST /v1/vnet` in the thread of the control
//! connection.

use causeway_model::MacMatch;

use super::command::{EndName, ListKind, RouteWords, Secret, VnetCommand, VnetTransport};
use crate::limits::VNET_LINE_BYTES_MAX;
use causeway_model::draft::host::is_host;

/// The reason why a line is no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// The line has this many bytes, more than [`VNET_LINE_BYTES_MAX`] (256).
    #[error("a line of {0} bytes: expected at most {VNET_LINE_BYTES_MAX}")]
    TooLong(usize),
    /// The byte at this position of the line, from 1, is no printable ASCII character.
    #[error("byte {0} of the line is no printable ASCII character")]
    NotText(usize),
    /// The first word is no command. The text lists all.
    #[error(
        "unknown command {0:?}: expected HELLO, ADDLINK, DELETELINK, ADDROUTE, DELETEROUTE, \
         REGISTERLINK, DEREGISTERLINK, ADD, DEL, LIST, DEVICES? or DONE"
    )]
    Unknown(String),
    /// A word is missing.
    #[error("{command}: {what} is missing")]
    Missing {
        /// The command.
        command: &'static str,
        /// The missing word.
        what: &'static str,
    },
    /// The line has too many words.
    #[error("{command}: unexpected {word:?} at the end")]
    Excess {
        /// The command.
        command: &'static str,
        /// The first excess word.
        word: String,
    },
    /// A word has an unexpected form.
    #[error("{command}: {word:?}: expected {expected}")]
    Bad {
        /// The command.
        command: &'static str,
        /// The word.
        word: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A HELLO behind a HELLO on the same line.
    #[error("HELLO: one is enough")]
    Twice,
    /// `DEL` with a number, but neither `LINK` nor `ROUTE`.
    #[error("DEL {0}: expected DEL LINK {0} or DEL ROUTE {0}")]
    DelWhat(u64),
    /// `ADD` with neither a link nor a route.
    #[error(
        "ADD: expected LINK or ROUTE, or two or three words for a link, five or six for a route"
    )]
    AddWhat,
}

/// Parses a line, with or without its line end. Returns `None` for an empty line or a comment.
///
/// # Errors
/// The first problem of the line, with the expected form.
pub fn parse(line: &[u8]) -> Result<Option<VnetCommand>, SyntaxError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > VNET_LINE_BYTES_MAX {
        return Err(SyntaxError::TooLong(line.len()));
    }
    let text = |b: &u8| matches!(b, b' '..=b'~' | b'\t');
    if let Some(at) = line.iter().position(|b| !text(b)) {
        return Err(SyntaxError::NotText(at.saturating_add(1)));
    }
    let line = std::str::from_utf8(line).map_err(|e| SyntaxError::NotText(e.valid_up_to()))?;
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(None) };
    let words = words.collect();
    command(first, words, true).map(Some)
}

/// The remaining words of a line. `what` and `expected` are texts for errors.
struct LineWords<'a> {
    /// The command, for errors.
    command: &'static str,
    left: std::vec::IntoIter<&'a str>,
}

impl<'a> LineWords<'a> {
    /// Takes the next word.
    fn next(&mut self, what: &'static str) -> Result<&'a str, SyntaxError> {
        self.left.next().ok_or(SyntaxError::Missing { command: self.command, what })
    }

    /// Returns the error for a word of an unexpected form.
    fn bad(&self, word: &str, expected: &'static str) -> SyntaxError {
        SyntaxError::Bad { command: self.command, word: word.to_owned(), expected }
    }

    /// Refuses further words.
    fn end(&mut self) -> Result<(), SyntaxError> {
        match self.left.next() {
            None => Ok(()),
            Some(word) => Err(SyntaxError::Excess { command: self.command, word: word.to_owned() }),
        }
    }

    /// Takes a host name or an address; does not resolve it.
    fn host(&mut self) -> Result<String, SyntaxError> {
        let word = self.next("the peer's host")?;
        if is_host(word) { Ok(word.to_owned()) } else { Err(self.bad(word, "a host or address")) }
    }

    /// Takes a decimal number without a sign.
    fn number<T: std::str::FromStr>(
        &mut self,
        what: &'static str,
        expected: &'static str,
    ) -> Result<T, SyntaxError> {
        let word = self.next(what)?;
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        word.parse().ok().filter(|_| digits).ok_or_else(|| self.bad(word, expected))
    }

    /// Takes a port, 1 to 65535.
    fn port(&mut self, what: &'static str) -> Result<u16, SyntaxError> {
        match self.number(what, "a port, 1 to 65535")? {
            0 => Err(self.bad("0", "a port, 1 to 65535")),
            port => Ok(port),
        }
    }

    /// Takes a control port; 0 leaves the peer unnotified.
    fn control_port(&mut self) -> Result<u16, SyntaxError> {
        self.number("the control port", "a port, 0 to 65535")
    }

    /// Takes a password.
    fn secret(&mut self, what: &'static str) -> Result<Secret, SyntaxError> {
        self.next(what).map(Secret::new)
    }

    /// Takes the word UDP or TCP.
    fn transport(&mut self) -> Result<VnetTransport, SyntaxError> {
        let word = self.next("UDP or TCP")?;
        match word.to_ascii_uppercase().as_str() {
            "UDP" => Ok(VnetTransport::Udp),
            "TCP" => Ok(VnetTransport::Tcp),
            _ => Err(self.bad(word, "UDP or TCP")),
        }
    }

    /// Takes an address that routes match.
    fn mac(&mut self, what: &'static str) -> Result<MacMatch, SyntaxError> {
        let word = self.next(what)?;
        let expected = "any, none, a MAC address, or not- and one";
        word.parse().map_err(|_| self.bad(word, expected))
    }

    /// Takes the word MYSELF, in place of the sender's address.
    fn myself(&mut self) -> Result<(), SyntaxError> {
        let word = self.next("MYSELF")?;
        let yes = word.eq_ignore_ascii_case("myself");
        if yes { Ok(()) } else { Err(self.bad(word, "MYSELF: your own address is taken")) }
    }

    /// Reads a transport and refuses TCP: a registration cannot state which side connects.
    fn udp(&mut self) -> Result<(), SyntaxError> {
        match self.transport()? {
            VnetTransport::Udp => Ok(()),
            VnetTransport::Tcp => Err(self.bad("TCP", "UDP: add TCP links at both ends")),
        }
    }

    /// Takes the words of a route. With `source_needed`, the end from which frames must have come
    /// is not optional.
    fn route(&mut self, source_needed: bool) -> Result<RouteWords, SyntaxError> {
        let source = self.mac("the source address")?;
        let destination = self.mac("the destination address")?;
        let kind = self.next("INTERFACE or EDGE")?;
        let to = match kind.to_ascii_uppercase().as_str() {
            "INTERFACE" => EndName::Interface(self.next("the interface")?.to_owned()),
            "EDGE" => EndName::Edge(self.next("the edge")?.to_owned()),
            _ => return Err(self.bad(kind, "INTERFACE or EDGE")),
        };
        let from = match self.left.next() {
            None if source_needed => self.next("INTERFACE, EDGE or ANY").map(|_| None)?,
            None => None,
            Some(kind) => match kind.to_ascii_uppercase().as_str() {
                "INTERFACE" => Some(EndName::Interface(self.next("the interface")?.to_owned())),
                "EDGE" => Some(EndName::Edge(self.next("the edge")?.to_owned())),
                "ANY" => {
                    self.any()?;
                    None
                }
                _ => return Err(self.bad(kind, "INTERFACE, EDGE or ANY")),
            },
        };
        self.end()?;
        Ok(RouteWords { source, destination, to, from })
    }

    /// Accepts an optional second ANY, which VNET/U's client sends.
    fn any(&mut self) -> Result<(), SyntaxError> {
        match self.left.next() {
            Some(word) if !word.eq_ignore_ascii_case("any") => {
                Err(self.bad(word, "nothing, or ANY"))
            }
            _ => Ok(()),
        }
    }
}

/// Parses a command from its first word and the others. `greeting` is whether HELLO is permitted.
fn command(first: &str, words: Vec<&str>, greeting: bool) -> Result<VnetCommand, SyntaxError> {
    let keyword = first.to_ascii_uppercase();
    let begin = |command| LineWords { command, left: words.clone().into_iter() };
    let (done, mut words) = match keyword.as_str() {
        "HELLO" if !greeting => return Err(SyntaxError::Twice),
        "HELLO" => return hello(begin("HELLO")),
        "ADD" => return add(&words),
        "DEL" => return del(begin("DEL")),
        "LIST" => return list(begin("LIST")),
        "DEVICES?" => (VnetCommand::List(ListKind::Devices), begin("DEVICES?")),
        "DONE" => (VnetCommand::Done, begin("DONE")),
        "ADDLINK" => {
            let mut words = begin("ADDLINK");
            let command = VnetCommand::AddLink {
                host: words.host()?,
                control_port: words.control_port()?,
                data_port: words.port("the data port")?,
                password: words.secret("the remote password")?,
                transport: words.transport()?,
            };
            (command, words)
        }
        "DELETELINK" => {
            let mut words = begin("DELETELINK");
            let command = VnetCommand::DeleteLink {
                host: words.host()?,
                control_port: words.control_port()?,
                password: words.secret("the remote password")?,
                transport: words.transport()?,
            };
            (command, words)
        }
        "REGISTERLINK" => {
            let mut words = begin("REGISTERLINK");
            words.myself()?;
            let data_port = words.port("the data port")?;
            words.udp()?;
            (VnetCommand::RegisterLink { data_port }, words)
        }
        "DEREGISTERLINK" => {
            let mut words = begin("DEREGISTERLINK");
            words.myself()?;
            words.udp()?;
            (VnetCommand::DeregisterLink, words)
        }
        "ADDROUTE" => return begin("ADDROUTE").route(false).map(VnetCommand::AddRoute),
        "DELETEROUTE" => return begin("DELETEROUTE").route(false).map(VnetCommand::DeleteRoute),
        _ => return Err(SyntaxError::Unknown(first.to_owned())),
    };
    words.end()?;
    Ok(done)
}

/// Parses HELLO, and the command that follows on its line.
fn hello(mut words: LineWords<'_>) -> Result<VnetCommand, SyntaxError> {
    let password = words.secret("the password")?;
    let version = words.next("the version")?.to_owned();
    let then = match words.left.next() {
        None => None,
        Some(first) => Some(Box::new(command(first, words.left.collect(), false)?)),
    };
    Ok(VnetCommand::Hello { password, version, then })
}

/// Parses `ADD`, by its second word or by the number of words.
fn add(words: &[&str]) -> Result<VnetCommand, SyntaxError> {
    let is = |word: &str| words.first().is_some_and(|first| first.eq_ignore_ascii_case(word));
    let (link, rest) = match words.len() {
        _ if is("LINK") => (true, words.get(1..)),
        _ if is("ROUTE") => (false, words.get(1..)),
        2 | 3 => (true, Some(words)),
        5 | 6 => (false, Some(words)),
        _ => return Err(SyntaxError::AddWhat),
    };
    let left = rest.unwrap_or_default().to_vec().into_iter();
    if !link {
        return LineWords { command: "ADD ROUTE", left }.route(true).map(VnetCommand::AddRoute);
    }
    let mut words = LineWords { command: "ADD LINK", left };
    let (host, port) = (words.host()?, words.port("the port")?);
    let transport = if words.left.len() == 0 { VnetTransport::Udp } else { words.transport()? };
    words.end()?;
    Ok(VnetCommand::LinkAdd { host, port, transport })
}

/// Parses `DEL`.
fn del(mut words: LineWords<'_>) -> Result<VnetCommand, SyntaxError> {
    const EXPECTED: &str = "LINK or ROUTE, and its number in the list";
    let what = words.next(EXPECTED)?;
    let number = |words: &mut LineWords<'_>| words.number("the number", "a number of the list");
    let command = match what.to_ascii_uppercase().as_str() {
        "LINK" => VnetCommand::LinkDel(number(&mut words)?),
        "ROUTE" => VnetCommand::RouteDel(number(&mut words)?),
        other => {
            let digits = other.bytes().all(|b| b.is_ascii_digit());
            return Err(match other.parse() {
                Ok(number) if digits => SyntaxError::DelWhat(number),
                _ => words.bad(what, EXPECTED),
            });
        }
    };
    words.end()?;
    Ok(command)
}

/// Parses `LIST`.
fn list(mut words: LineWords<'_>) -> Result<VnetCommand, SyntaxError> {
    const EXPECTED: &str = "LINKS, ROUTES or DEVICES";
    let what = words.next(EXPECTED)?;
    let list = match what.to_ascii_uppercase().as_str() {
        "LINKS" => ListKind::Links,
        "ROUTES" => ListKind::Routes,
        "DEVICES" => ListKind::Devices,
        _ => return Err(words.bad(what, EXPECTED)),
    };
    words.end()?;
    Ok(VnetCommand::List(list))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
