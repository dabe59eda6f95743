//! Ports of kind `stream`: Ethernet frames on a stream socket, each behind its length.
//!
//! The peer is a VMM or a user-mode network stack without vhost-user: QEMU (`-netdev stream`),
//! passt, gvproxy. The port listens at its Unix socket, or at a TCP address instead (`tcp`); with
//! `connect` it connects there, again and again while the peer is away. The stream service reads
//! the options in its shard's thread when the port is added. TCP carries the frames without
//! encryption and without a check of the peer: the address should be of the loopback interface. The
//! MTU (68 to 65,535) bounds the frames that the port accepts and sends.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::net::MTU_DEFAULT;
use super::{KindDefinition, PortContext, PortOptions, unicast};
use crate::Mac;
use crate::limits::MTU_MIN;
use crate::schema::{DefaultValue, Field, ValueType, table, text};

/// Ports on stream sockets.
pub static STREAM: KindDefinition = KindDefinition::new::<StreamSpec>(
    "stream",
    "A network interface on a stream socket (QEMU -netdev stream, passt, gvproxy)",
    &[STREAM_FIELDS, CONNECT_FIELDS],
)
.without_guest()
.on_network();

/// The key of ports that may connect to their peer.
const CONNECT_FIELDS: &[Field] = &[Field::new(
    "connect",
    "Connect to socket or tcp, where the peer listens, instead of listening there. The daemon connects \
     again, at most once a second, while the peer is away.",
    ValueType::Boolean,
    DefaultValue::Boolean(false),
)];

table! {
    /// A port on a stream socket.
    pub struct StreamSpec, pub const STREAM_FIELDS {
        /// Address of the peer's interface. Frames from other source addresses are dropped unless learn
        /// is set.
        mac: Mac => unicast(),
            DefaultValue::Derived("derived from the machine, the group and the name"), .unique();
        /// Largest payload of a frame, in bytes. A longer frame of the peer closes the connection.
        mtu: u16 => ValueType::Integer { min: MTU_MIN as u64, max: u16::MAX as u64, unit: "BYTES" },
            DefaultValue::Derived("1500, or less if the links of the group carry less");
        /// Accept and learn other source addresses: a network stack (passt, gvproxy), a bridge.
        learn: bool => ValueType::Boolean, DefaultValue::Boolean(false);
        /// TCP address instead of the Unix socket. Not encrypted, and any process that reaches the
        /// address may connect: use a loopback address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tcp: Option<SocketAddr> => text::<SocketAddr>("ADDRESS:PORT"),
            DefaultValue::NoneMeans("the Unix socket");
    }
}

impl PortOptions for StreamSpec {
    fn kind() -> &'static KindDefinition {
        &STREAM
    }

    fn complete(values: &mut Map<String, Value>, port: &PortContext<'_>) {
        values.entry("mac").or_insert_with(|| json!(port.derived_mac()));
        values.entry("mtu").or_insert_with(|| json!(MTU_DEFAULT.min(port.links_mtu)));
    }

    fn check(&self) -> Result<(), String> {
        match self.tcp {
            Some(tcp) if tcp.port() == 0 => {
                Err(format!("tcp: {tcp}: expected a port of 1 to 65535"))
            }
            _ => Ok(()),
        }
    }

    fn address(&self) -> Option<String> {
        self.tcp.map(|tcp| tcp.to_string())
    }
}
