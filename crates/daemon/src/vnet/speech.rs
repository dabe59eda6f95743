//! What can be said.

use std::fmt;

use causeway_model::MacMatch;

/// The version of the language that a HELLO must name.
pub const VERSION: &str = "0.9";

/// A word that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a word.
    pub fn new(word: &str) -> Self {
        Self(word.to_owned())
    }

    /// The word.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Begins a session; a command may follow on the same line.
    Hello {
        /// Must be the server's.
        password: Secret,
        /// Must be [`VERSION`].
        version: String,
        /// What follows.
        then: Option<Box<Command>>,
    },
    /// Ends the session.
    Done,
    /// VNET/U's AddLink.
    AddLink {
        /// The peer's name or address.
        host: String,
        /// Where the peer's server is told; 0: it is not.
        control_port: u16,
        /// Where frames go.
        data_port: u16,
        /// What it is told with.
        password: Secret,
        /// How.
        transport: Transport,
    },
    /// VNET/U's DeleteLink.
    DeleteLink {
        /// The peer's name or address.
        host: String,
        /// Where the peer's server is told; 0: it is not.
        control_port: u16,
        /// What it is told with.
        password: Secret,
        /// How it is reached.
        transport: Transport,
    },
    /// A link to us was added at the peer that says so: add ours to it.
    RegisterLink {
        /// Where it takes frames.
        data_port: u16,
    },
    /// The same, deleted.
    DeregisterLink,
    /// AddRoute.
    AddRoute(Route),
    /// DeleteRoute, of the route that reads so.
    DeleteRoute(Route),
    /// VNET/P's `ADD` of a link.
    LinkAdd {
        /// The peer's name or address.
        host: String,
        /// Where frames go.
        port: u16,
        /// How.
        transport: Transport,
    },
    /// VNET/P's `DEL` of a link.
    LinkDel(u64),
    /// VNET/P's `DEL` of a route.
    RouteDel(u64),
    /// Show them.
    List(List),
}

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The group's links.
    Links,
    /// Its routes.
    Routes,
    /// Its ports.
    Devices,
}

/// How a link's frames cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// The bare frame in UDP.
    Udp,
    /// VNET/U's framing over TCP.
    Tcp,
}

/// A route as it is said: its ends are yet to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// From which addresses.
    pub source: MacMatch,
    /// To which.
    pub destination: MacMatch,
    /// Where they go.
    pub to: End,
    /// Where they must have come from; `None`: anywhere.
    pub from: Option<End>,
}

/// One end of a route, by what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// A port, by name or MAC address, or a raw link, by name or interface.
    Interface(String),
    /// A link, by name, or its host's name or address.
    Edge(String),
}
