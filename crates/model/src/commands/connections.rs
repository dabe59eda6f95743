//! The list of AF_VSOCK connections, answered by the socket service.
//!
//! The control API sends the command (`GET /v1/connections`, `POST /v1/connections` with a filter)
//! in the thread of the client's connection. A port may have 16,384 connections, so the list comes
//! in pages ([`CONNECTIONS_PAGE_MAX`]): [`ConnectionPage::next`] is the start of the next page. The
//! pages are samples of different times; a connection that is opened or closed meanwhile may be
//! missing. The command changes nothing.
//!
//! [`CONNECTIONS_PAGE_MAX`]: crate::limits::CONNECTIONS_PAGE_MAX

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::view::{ConnectionPage, ConnectionState};
use crate::{Name, TypedRequest};

/// Lists connections that fit every given value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    /// Group of the connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// Port of one side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<Name>,
    /// CID of one side; 2 is the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cid: Option<u32>,
    /// Port number of one side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// State of the connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ConnectionState>,
    /// Start of the page, from the last page; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<PagePosition>,
    /// Most connections of the page, 1 to [`CONNECTIONS_PAGE_MAX`], which is also the default.
    ///
    /// [`CONNECTIONS_PAGE_MAX`]: crate::limits::CONNECTIONS_PAGE_MAX
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl TypedRequest for List {
    type Answer = ConnectionPage;
}

/// A position in the list of connections: a group, and a slot of its table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PagePosition {
    /// The group.
    pub group: Name,
    /// The first slot of the page.
    pub slot: u32,
}

impl fmt::Display for PagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.slot)
    }
}

impl FromStr for PagePosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected the value next of a page");
        let (group, slot) = text.rsplit_once('/').ok_or_else(wrong)?;
        let (group, slot) = (group.parse().map_err(|_| wrong())?, slot.parse());
        Ok(Self { group, slot: slot.map_err(|_| wrong())? })
    }
}

impl TryFrom<String> for PagePosition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PagePosition> for String {
    fn from(position: PagePosition) -> Self {
        position.to_string()
    }
}
