//! Captures: copies of frames that pass a port or a link.
//!
//! A client of the control socket begins a capture by
//! [`commands::captures`](crate::commands::captures) and fetches [`CaptureChunk`]s of the capture
//! file; the Ethernet service copies the frames as they pass, in the dispatcher of the group; the
//! services of adapters and vsock ports copy theirs. A capture at a link has the frames of all
//! links to the same peer. The module holds the values alone.
//!
//! A capture does not delay or change frames. Bytes that are not fetched wait in a buffer of 8 MiB;
//! frames that do not fit are dropped from the capture and counted ([`CaptureChunk::dropped`]). A
//! filter combines its conditions by *and*; *or* and *not* do not exist. Frames that the service
//! drops after the copy are in the capture too. Captures are not in the configuration file and do
//! not survive the daemon. At an adapter the messages of its queue pairs are captured, as packets
//! of RoCE version 2, at a vsock port its socket packets ([`CaptureFormat`]). MX messages cannot be
//! captured.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Mac, RouteEnd};

/// The packets that a capture at a port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureFormat {
    /// Ethernet frames (link type 1).
    Ethernet,
    /// Socket packets (link type 271), of which a filter selects by port number only.
    Vsock,
}

impl CaptureFormat {
    /// Returns the name of the format, as the control API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Vsock => "vsock",
        }
    }
}

/// A capture: the port or link, the filter, and limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureSpec {
    /// The port or link at which frames are copied.
    pub at: RouteEnd,
    /// Conditions on the frames that are copied.
    #[serde(default)]
    pub filter: Filter,
    /// Bytes kept of each frame, from its start; 0 keeps whole frames.
    #[serde(default)]
    pub snap: u32,
    /// Frames after which the capture closes; 0 means no limit.
    #[serde(default)]
    pub count: u64,
}

/// Conditions on a frame; a frame must fulfil each condition that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Source or destination Ethernet address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// EtherType, after all VLAN tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// Source or destination IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<IpAddr>,
    /// IP protocol number: 6 for TCP, 17 for UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Source or destination TCP or UDP port; of a socket packet, source or destination port
    /// number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// The next part of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureChunk {
    /// The next bytes of the capture file; base64 in JSON.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub bytes: Vec<u8>,
    /// Frames that passed the filter, since the capture began.
    #[serde(rename = "frames_total")]
    pub frames: u64,
    /// Frames of these that were dropped because the buffer was full.
    #[serde(rename = "dropped_total")]
    pub dropped: u64,
    /// Whether no frame is added any more, so that the bytes in this and the following chunks are
    /// the last: the limit is reached, the capture was stopped, or the port or link is gone.
    pub closed: bool,
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(|error| D::Error::custom(format!("bytes: {error}")))
}
