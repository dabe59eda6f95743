//! Ports of kind `dgram`: Ethernet frames as datagrams, on a Unix datagram socket or by UDP.
//!
//! The peer is a VMM (vfkit, krunkit, libkrun, QEMU's `-netdev dgram`) or a UDP tunnel of a network
//! emulator (GNS3, dynamips, ubridge). A Unix port receives at its socket, and sends to the path
//! given as `peer`, else to the socket from which frames come. A UDP port has a local and a remote
//! address; datagrams from elsewhere are dropped by the kernel. UDP carries the frames without
//! encryption, and source addresses of UDP can be forged on most networks.
//!
//! The stream service reads the options in its shard's thread when the port is added. The checks
//! touch no file and no socket. The kernel does not report the user who sends to a datagram socket:
//! the service refuses `allowed_users`.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::net::MTU_DEFAULT;
use super::{KindDefinition, PortContext, PortOptions, unicast};
use crate::Mac;
use crate::limits::{MTU_MIN, SOCKET_PATH_BYTES_MAX};
use crate::schema::{DefaultValue, ValueType, table, text};

/// Largest MTU of a UDP port, in bytes: frame and VLAN tags fit a UDP datagram over IPv4. A larger
/// one is refused.
const UDP_MTU_MAX: u16 = 65_485;

/// Ports on datagram sockets.
pub static DGRAM: KindDefinition = KindDefinition::new::<DgramSpec>(
    "dgram",
    "A network interface on a datagram socket (vfkit, libkrun, QEMU -netdev dgram, GNS3)",
    &[DGRAM_FIELDS],
)
.without_guest()
.on_network();

table! {
    /// A port on a datagram socket.
    pub struct DgramSpec, pub const DGRAM_FIELDS {
        /// Address of the peer's interface. Frames from other source addresses are dropped unless learn
        /// is set.
        mac: Mac => unicast(),
            DefaultValue::Derived("derived from the machine, the group and the name"), .unique();
        /// Largest payload of a frame, in bytes. Longer frames of the peer are dropped.
        mtu: u16 => ValueType::Integer { min: MTU_MIN as u64, max: u16::MAX as u64, unit: "BYTES" },
            DefaultValue::Derived("1500, or less if the links of the group carry less");
        /// Accept and learn other source addresses: an emulated switch or router, a bridge.
        learn: bool => ValueType::Boolean, DefaultValue::Boolean(false);
        /// Unix datagram socket of the peer; frames from other sockets are dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<PathBuf> => ValueType::Path,
            DefaultValue::NoneMeans("the socket that sends first, or announces itself by VFKT");
        /// Local UDP address instead of the Unix socket. Not encrypted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        udp: Option<SocketAddr> => text::<SocketAddr>("ADDRESS:PORT"),
            DefaultValue::NoneMeans("the Unix socket"), .with("remote");
        /// UDP address of the peer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<SocketAddr> => text::<SocketAddr>("ADDRESS:PORT"), DefaultValue::None,
            .with("udp");
    }
}

impl PortOptions for DgramSpec {
    fn kind() -> &'static KindDefinition {
        &DGRAM
    }

    fn complete(values: &mut Map<String, Value>, port: &PortContext<'_>) {
        values.entry("mac").or_insert_with(|| json!(port.derived_mac()));
        values.entry("mtu").or_insert_with(|| json!(MTU_DEFAULT.min(port.links_mtu)));
    }

    fn check(&self) -> Result<(), String> {
        if let Some(peer) = &self.peer {
            let bytes = peer.as_os_str().len();
            if bytes > SOCKET_PATH_BYTES_MAX {
                return Err(format!(
                    "peer: a path of {bytes} bytes: expected at most {SOCKET_PATH_BYTES_MAX}"
                ));
            }
            if self.udp.is_some() {
                return Err("peer: expected no udp beside it: remote names the peer".into());
            }
        }
        let (Some(udp), Some(remote)) = (self.udp, self.remote) else { return Ok(()) };
        if udp.port() == 0 {
            return Err(format!("udp: {udp}: expected a port of 1 to 65535"));
        }
        if remote.port() == 0 || remote.ip().is_unspecified() || remote.ip().is_multicast() {
            return Err(format!("remote: {remote}: expected the address and port of one peer"));
        }
        if udp.is_ipv4() != remote.is_ipv4() || udp == remote {
            return Err(format!(
                "remote: {remote}: expected another address, of the family of udp"
            ));
        }
        if self.mtu > UDP_MTU_MAX {
            return Err(format!("mtu: {}: expected at most {UDP_MTU_MAX} with udp", self.mtu));
        }
        Ok(())
    }

    fn address(&self) -> Option<String> {
        self.udp.map(|udp| udp.to_string())
    }
}
