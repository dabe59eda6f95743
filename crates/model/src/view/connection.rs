//! Views of AF_VSOCK connections ([`crate::commands::connections`]).
//!
//! The socket service makes a view of each connection when it answers a request, in the
//! dispatcher's thread of the group; `causeway connection list` and `/v1/connections` print it. A
//! view is a copy that does not change. A page has at most 1,000 connections
//! ([`crate::limits::CONNECTIONS_PAGE_MAX`]); the next page begins at [`ConnectionPage::next`], and
//! connections that begin or end meanwhile may be absent or appear twice.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Textual, Typed, ViewForm};
use crate::Name;
use crate::commands::connections::PagePosition;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// The callee has not answered the connect.
    Requested,
    /// Data may flow in both directions.
    Open,
    /// A side has shut down a direction, or has left with data that its peer has not taken.
    Closing,
}

/// A part of the list of connections.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ConnectionPage<F: ViewForm = Typed> {
    /// The connections, by group.
    pub connections: Vec<ConnectionView<F>>,
    /// Start of the next page; absent at the end of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<F::Text<PagePosition>>,
}

/// A connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ConnectionView<F: ViewForm = Typed> {
    /// The group.
    pub group: F::Text<Name>,
    /// Socket type: `stream` or `seqpacket`.
    #[serde(rename = "type")]
    pub kind: F::Text<Cow<'static, str>>,
    /// State.
    pub state: F::Text<ConnectionState>,
    /// Time since the connect, in seconds.
    pub age_seconds: f64,
    /// The side that connected.
    pub caller: ConnectionEnd<F>,
    /// The side that was called.
    pub callee: ConnectionEnd<F>,
}

/// A side of a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ConnectionEnd<F: ViewForm = Typed> {
    /// Port of the guest; absent for a process of the host and for a guest of a linked daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<F::Text<Name>>,
    /// Link to the daemon of the guest; absent for this daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<F::Text<Name>>,
    /// CID: 2 for a process of the host.
    pub cid: u32,
    /// Port number.
    pub number: u32,
    /// Data for this side that the daemon could not deliver yet, in bytes; for a guest of a linked
    /// daemon, 0: what it has not acknowledged is a counter of the link.
    pub queued_bytes: u64,
    /// Delivered data that this side has not read, as far as it reported, in bytes.
    pub unread_bytes: u32,
    /// Data that the peer may still send to this side before this side must read, in bytes.
    pub credit_bytes: u32,
}

impl ConnectionEnd<Textual> {
    /// Returns the side as `PORT:NUMBER`, as `LINK/CID:NUMBER` for a guest of a linked daemon, and as
    /// `host:NUMBER` for a process of the host.
    pub fn label(&self) -> String {
        let Self { port, link, cid, number, .. } = self;
        match (port, link) {
            (Some(port), _) => format!("{port}:{number}"),
            (None, Some(link)) => format!("{link}/{cid}:{number}"),
            (None, None) => format!("host:{number}"),
        }
    }
}
