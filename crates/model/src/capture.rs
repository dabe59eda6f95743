//! Captures: copies of frames that pass a port or a link.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Mac, RouteEnd};

/// What to capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureSpec {
    /// At which port or link.
    pub at: RouteEnd,
    /// Which frames; all that the filter lets through.
    #[serde(default)]
    pub filter: Filter,
    /// Bytes kept of each frame, from its start; 0 for all.
    #[serde(default)]
    pub snap: u32,
    /// Frames kept before it closes by itself; 0 for no end.
    #[serde(default)]
    pub count: u64,
}

/// Which frames: those that fit everything that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// From or to this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Of this EtherType, behind all tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// From or to this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<IpAddr>,
    /// Of this IP protocol: 6 for TCP, 17 for UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// From or to this TCP or UDP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// What was fetched of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The next bytes of the file.
    pub bytes: Vec<u8>,
    /// Frames so far that fit the filter.
    pub frames: u64,
    /// Those of them that found no room.
    pub dropped: u64,
    /// Whether no more will come behind what waits: it has all that it was to keep, it was stopped,
    /// or the port or link is gone.
    pub closed: bool,
}
