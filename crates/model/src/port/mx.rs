//! Ports of kind `mx`: NICs of MX endpoints, to which processes attach.
//!
//! The MX service reads the options in its shard's thread when the port is added. A port of this
//! kind has no guest, no virtio device and no granted guest memory. A NIC reaches NICs of other
//! hosts by an interface or by UDP, not by both, and without either it reaches only NICs of this
//! host in its group. More than [`MX_PEERS_MAX`] (1,024) configured peers, and more than
//! [`MX_UDP_PEERS_MAX`] (64) UDP addresses, are refused when the table is read. The checks do not
//! open the interface and do not compare with other NICs; the service refuses a conflict when the
//! port is added.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::{KindDefinition, PortContext, PortOptions, unicast};
use crate::limits::{HOSTNAME_BYTES_MAX, MX_PEERS_MAX, MX_UDP_PEERS_MAX};
use crate::schema::{DefaultValue, Form, ValueType, parses, table, text};
use crate::{Mac, Name, RawSpec};

/// NICs of MX endpoints.
pub static MX: KindDefinition =
    KindDefinition::new::<MxSpec>("mx", "A NIC of MX endpoints, for processes", &[MX_FIELDS])
        .without_guest()
        .resuming();

table! {
    /// A NIC of MX endpoints.
    pub struct MxSpec, pub const MX_FIELDS {
        /// The address of the NIC (`nic_id`).
        mac: Mac => unicast(),
            DefaultValue::Derived("derived from the machine, the group and the name"), .unique();
        /// The name by which peers find the NIC, usually `host:board`. Processes of this host also find it
        /// by the port's name.
        hostname: String =>
            ValueType::Text(Form { placeholder: "NAME", check: MxSpec::check_hostname }),
            DefaultValue::Derived("HOST:PORT, of the host's name and the port's name");
        /// Interface of this host that connects to NICs of other hosts. MXoE frames do not name a
        /// group: all NICs on the network behind the interface reach each other, so separate groups
        /// need separate interfaces, such as VLANs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String> =>
            ValueType::Text(Form { placeholder: "NAME", check: RawSpec::check_interface }),
            DefaultValue::NoneMeans("none: NICs of other hosts are not reached");
        /// Let processes send and receive on the interface themselves (direct mode). Faster between
        /// hosts, but the processes must be trusted: the daemon does not check their frames.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        bypass: bool => ValueType::Boolean, DefaultValue::Boolean(false), .with("interface");
        /// UDP datagrams to other hosts, instead of an interface.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        udp: Option<MxUdp> => ValueType::Table(MX_UDP_FIELDS), DefaultValue::None;
        /// Port of kind `hca` in the same group: processes of its guest use the NIC, without a driver
        /// or socket in the guest. One NIC serves all processes of a guest, which share its limits of
        /// a user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adapter: Option<Name> => text::<Name>("PORT"),
            DefaultValue::NoneMeans("none: no process of a guest uses the NIC");
        /// NICs of other hosts that are known without an announcement.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        peers: Vec<MxPeer> => ValueType::Tables(MX_PEER_FIELDS), DefaultValue::None;
    }
}

const ADDRESSES: &str = "expected addresses with ports, as \"10.0.0.1:9001\"";

table! {
    /// Datagrams that carry MXoE frames.
    pub struct MxUdp, pub const MX_UDP_FIELDS {
        /// Address and port at which this host receives.
        listen: SocketAddr => text::<SocketAddr>("ADDRESS:PORT"), DefaultValue::Required(ADDRESSES);
        /// Addresses and ports at which other hosts receive.
        peers: Vec<SocketAddr> =>
            ValueType::Texts(Form { placeholder: "ADDRESS:PORT", check: parses::<SocketAddr> }),
            DefaultValue::Required(ADDRESSES);
    }
}

table! {
    /// A NIC of another host.
    pub struct MxPeer, pub const MX_PEER_FIELDS {
        /// Address of the NIC.
        mac: Mac => unicast(), DefaultValue::Required("expected a NIC's address");
        /// Name of the NIC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String> =>
            ValueType::Text(Form { placeholder: "NAME", check: MxSpec::check_hostname }),
            DefaultValue::NoneMeans("the NIC is asked");
    }
}

impl PortOptions for MxSpec {
    fn kind() -> &'static KindDefinition {
        &MX
    }

    fn complete(values: &mut Map<String, Value>, port: &PortContext<'_>) {
        values.entry("mac").or_insert_with(|| json!(port.derived_mac()));
        values.entry("hostname").or_insert_with(|| json!(port.derived_nic_name()));
    }

    fn check(&self) -> Result<(), String> {
        if let Some(udp) = &self.udp {
            udp.check().map_err(|text| format!("udp: {text}"))?;
            if self.interface.is_some() {
                let text = "udp: expected no interface beside it: another NIC may have that";
                return Err(text.into());
            }
        }
        if self.interface.is_none() && self.udp.is_none() && !self.peers.is_empty() {
            return Err("peers: expected interface or udp, by which they are reached".into());
        }
        if self.peers.len() > MX_PEERS_MAX {
            return Err(format!("peers: {} of them: at most {MX_PEERS_MAX}", self.peers.len()));
        }
        match self.peers.iter().find(|peer| peer.mac == self.mac) {
            None => Ok(()),
            Some(peer) => Err(format!("peers: mac {}: expected another NIC's address", peer.mac)),
        }
    }

    fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }
}

impl MxSpec {
    /// Returns the options of a NIC that reaches no other host.
    pub fn local(mac: Mac, hostname: String) -> Self {
        let (interface, udp, adapter, peers) = (None, None, None, Vec::new());
        Self { mac, hostname, interface, bypass: false, udp, adapter, peers }
    }

    /// Checks the name of a NIC.
    ///
    /// # Errors
    /// The name is malformed; the text states the expected form.
    pub fn check_hostname(text: &str) -> Result<(), String> {
        let fits = !text.is_empty() && text.len() <= HOSTNAME_BYTES_MAX;
        if fits && text.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(());
        }
        let most = HOSTNAME_BYTES_MAX;
        Err(format!("{text:?}: expected 1 to {most} printable characters without spaces"))
    }
}

impl MxUdp {
    /// Checks the number of peers (1 to 64), and that each is another address of the family of
    /// `listen`.
    fn check(&self) -> Result<(), String> {
        if self.peers.is_empty() || self.peers.len() > MX_UDP_PEERS_MAX {
            let count = self.peers.len();
            return Err(format!("{count} peers: expected 1 to {MX_UDP_PEERS_MAX}"));
        }
        let is_unfit = |peer: &&SocketAddr| {
            peer.is_ipv4() != self.listen.is_ipv4()
                || peer.port() == 0
                || peer.ip().is_unspecified()
                || **peer == self.listen
        };
        match self.peers.iter().find(is_unfit) {
            None => Ok(()),
            Some(peer) => Err(format!(
                "peer {peer}: expected another host's address, of the family of listen"
            )),
        }
    }
}
