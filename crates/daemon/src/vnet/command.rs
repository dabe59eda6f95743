//! The commands of the VNET language, as values: the result of `vnet::parse`, and the input of
//! `vnet::plan` and `vnet::print`.
//!
//! Values are syntactically valid and nothing more: hosts and ends of routes are text that is not
//! resolved yet, and a link or route may not exist. A word has at most the 256 bytes of a line
//! (`vnet::parse` checks it), a port for frames is not 0 (a control port may be). The module has no
//! functions on commands. Passwords are [`Secret`]s, which `Debug` omits; they are not wiped from
//! memory when dropped. The values belong to the thread of the session, or of the reader of a file.

use std::fmt;

use causeway_model::MacMatch;

/// The version of the language that a HELLO must name.
pub const VERSION: &str = "0.9";

/// A word that `Debug` does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns a secret with this text.
    pub fn new(word: &str) -> Self {
        Self(word.to_owned())
    }

    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A command: the content of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VnetCommand {
    /// Authenticates the client, as the first command of a session; a command may follow on the
    /// same line.
    Hello {
        /// Password of the client; must equal the server's in a session, and is ignored in a file.
        password: Secret,
        /// Version of the language; must be [`VERSION`].
        version: String,
        /// The command that follows.
        then: Option<Box<VnetCommand>>,
    },
    /// Ends the session.
    Done,
    /// VNET/U's AddLink: adds a link.
    AddLink {
        /// Name or address of the peer.
        host: String,
        /// Control port of the peer's server; 0 leaves the peer unnotified.
        control_port: u16,
        /// Port of the peer for frames.
        data_port: u16,
        /// Password of the peer's server.
        password: Secret,
        /// Transport of the link.
        transport: VnetTransport,
    },
    /// VNET/U's DeleteLink: deletes a link.
    DeleteLink {
        /// Name or address of the peer.
        host: String,
        /// Control port of the peer's server; 0 leaves the peer unnotified.
        control_port: u16,
        /// Password of the peer's server.
        password: Secret,
        /// Transport of the link.
        transport: VnetTransport,
    },
    /// The sending peer has added a link to this host: add the other end.
    RegisterLink {
        /// Port of the peer for frames.
        data_port: u16,
    },
    /// The sending peer has deleted its link to this host: delete the other end.
    DeregisterLink,
    /// Adds a route.
    AddRoute(RouteWords),
    /// Deletes the equal route.
    DeleteRoute(RouteWords),
    /// VNET/P's `ADD` of a link.
    LinkAdd {
        /// Name or address of the peer.
        host: String,
        /// Port of the peer for frames.
        port: u16,
        /// Transport of the link.
        transport: VnetTransport,
    },
    /// VNET/P's `DEL` of a link, by its number.
    LinkDel(u64),
    /// VNET/P's `DEL` of a route, by its number.
    RouteDel(u64),
    /// Lists objects of the group.
    List(ListKind),
}

/// The objects to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// The links.
    Links,
    /// The routes.
    Routes,
    /// The ports that send and receive frames.
    Devices,
}

/// The transport of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VnetTransport {
    /// The Ethernet frame in UDP without a further header.
    Udp,
    /// VNET/U's framing over TCP.
    Tcp,
}

/// A route whose ends are not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteWords {
    /// Source addresses that match.
    pub source: MacMatch,
    /// Destination addresses that match.
    pub destination: MacMatch,
    /// Port or link to which matching frames go.
    pub to: EndName,
    /// Port or link from which frames must have come; `None` is any.
    pub from: Option<EndName>,
}

/// An end of a route in text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndName {
    /// A port, by name or MAC address, or a raw link, by name or interface.
    Interface(String),
    /// A link, by its name or by its host's name or address.
    Edge(String),
}
