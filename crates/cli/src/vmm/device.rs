//! The device of a port, as every VMM needs it: kind, socket, address, MTU and queues.
//!
//! [`Device::of`] reads a port's view. A port that no VMM can attach is refused with the reason:
//! processes attach to ports of kind `mx`, and this release does not know the devices of a newer
//! daemon's kinds. The modules of the VMMs refuse further kinds that their VMM lacks. A port of
//! kind `stream`, `dgram` or `tap` among several ports is refused: alone it is a
//! [`super::FramePort`] or a [`super::TapPort`].
//!
//! `commands::vm` calls [`Device::of`] for each other port of the command, in the main thread of
//! the tool. The module trusts the daemon's view: a missing text is empty, and a missing number of
//! queue pairs is 1.

use serde_json::Value;

use super::AttachError;
use crate::view::{PortView, cell};

/// Default MTU of a guest's interface.
const MTU_USUAL: u32 = 1500;

/// A device of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Name of the port.
    pub port: String,
    /// Socket of the port.
    pub socket: String,
    /// Whether the VMM listens at the socket, and the daemon connects.
    pub is_listener: bool,
    /// Kind, with its properties.
    pub kind: DeviceKind,
}

/// The kind of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceKind {
    /// A virtio-net device, by vhost-user.
    Net(NetDevice),
    /// A virtio-vsock device, by vhost-user.
    Vsock,
    /// An RDMA adapter, by vfio-user.
    Adapter,
}

/// The properties of a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetDevice {
    /// Address that the guest has.
    pub mac: String,
    /// Largest payload of a frame, in bytes; `None` if the daemon did not report any.
    pub mtu: Option<u32>,
    /// Queue pairs, at least 1.
    pub queue_pairs: u32,
    /// Whether the port offers offloads towards the guest.
    pub has_offloads: bool,
}

impl NetDevice {
    /// Returns the MTU if it differs from the default of a guest's interface.
    pub fn unusual_mtu(&self) -> Option<u32> {
        self.mtu.filter(|mtu| *mtu != MTU_USUAL)
    }

    /// Returns the number of virtqueues without the control queue.
    pub fn queues(&self) -> u32 {
        self.queue_pairs.saturating_mul(2)
    }
}

impl Device {
    /// Returns the device of a port.
    ///
    /// # Errors
    /// [`AttachError`]: no VMM attaches to a port of the kind.
    pub fn of(port: &PortView) -> Result<Self, AttachError> {
        let name = cell(&port.spec, "name");
        let kind = match cell(&port.spec, "kind").as_str() {
            "net" => DeviceKind::Net(NetDevice {
                mac: guest_mac(port).to_owned(),
                mtu: port.spec.number("mtu"),
                queue_pairs: port.spec.number("queue_pairs").unwrap_or(1).max(1),
                has_offloads: port.spec.text("offloads") != Some("xdp"),
            }),
            "vsock" => DeviceKind::Vsock,
            "hca" => DeviceKind::Adapter,
            "tap" => return Err(AttachError::Interface { port: name }),
            "stream" | "dgram" => return Err(AttachError::Alone { port: name }),
            "mx" => return Err(AttachError::Processes { port: name }),
            other => return Err(AttachError::UnknownKind { port: name, kind: other.to_owned() }),
        };
        let is_listener = port.spec.0.get("connect").and_then(Value::as_bool) == Some(true);
        Ok(Self { port: name, socket: cell(&port.spec, "socket"), is_listener, kind })
    }

    /// Returns an identifier for a VMM, which must start with a letter; port names may start with a
    /// digit.
    pub fn id(&self) -> String {
        format!("cw-{}", self.port)
    }
}

/// Returns the address that the guest has.
fn guest_mac(port: &PortView) -> &str {
    port.spec.text("guest_mac").or_else(|| port.spec.text("mac")).unwrap_or_default()
}

#[cfg(test)]
pub mod samples {
    //! Ports in the form of `GET /v1/ports`, for the tests of the VMMs.

    use serde_json::{Value, json};

    use super::Device;
    use crate::view::PortView;

    /// Returns a port `1-net` with these values.
    pub fn port(values: Value) -> PortView {
        let mut base = json!({
            "name": "1-net", "group": "g", "state": "listening", "socket": "/run/c/1.sock",
        });
        base.as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
        serde_json::from_value(base).unwrap()
    }

    fn device(values: Value) -> Device {
        Device::of(&port(values)).unwrap()
    }

    /// Returns a net device with an MTU of 9,000 bytes.
    pub fn net(queue_pairs: u32) -> Device {
        device(json!({
            "kind": "net", "mac": "52:54:00:00:00:01", "mtu": 9000, "queue_pairs": queue_pairs,
        }))
    }

    /// Returns a net device with the MTU that guests have without being given any.
    pub fn usual_net() -> Device {
        device(json!({"kind": "net", "mac": "52:54:00:00:00:02", "mtu": 1500, "name": "2-net",
                      "socket": "/run/c/2.sock"}))
    }

    /// Returns a net device without offloads towards the guest.
    pub fn xdp_net(queue_pairs: u32) -> Device {
        device(json!({"kind": "net", "mac": "52:54:00:00:00:01", "queue_pairs": queue_pairs,
                      "offloads": "xdp"}))
    }

    /// Returns a socket device.
    pub fn vsock() -> Device {
        device(json!({"kind": "vsock", "cid": 3, "name": "1-vsock", "socket": "/run/c/v.sock"}))
    }

    /// Returns the device of a port that connects to its VMM.
    pub fn listening(device: Device) -> Device {
        Device { is_listener: true, ..device }
    }

    /// Returns an adapter.
    pub fn adapter() -> Device {
        device(json!({"kind": "hca", "mac": "52:54:00:00:00:01", "name": "1-rdma",
                      "socket": "/run/c/r.sock"}))
    }

    /// Returns a socket device at a path that each reader would split without quotes.
    pub fn odd_vsock() -> Device {
        device(json!({"kind": "vsock", "cid": 3, "socket": "/a b,c'd<&>"}))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attach_listens_for_ports_that_connect() {
        let device = Device::of(&samples::port(json!({"kind": "net", "connect": true})));
        assert!(device.unwrap().is_listener);
        assert!(!samples::net(1).is_listener);
    }

    #[test]
    fn attach_gives_a_clone_the_address_of_its_snapshot() {
        let values = json!({"kind": "net", "mac": "02:00:00:00:00:01",
                            "guest_mac": "52:54:00:00:00:09"});
        let DeviceKind::Net(net) = Device::of(&samples::port(values)).unwrap().kind else {
            panic!("a net device");
        };
        assert_eq!(net.mac, "52:54:00:00:00:09");
    }

    #[test]
    fn attach_refuses_ports_without_a_guest_and_unknown_kinds() {
        let error = Device::of(&samples::port(json!({"kind": "mx"}))).unwrap_err().to_string();
        assert!(error.contains("processes attach") && error.contains("mpi-env"), "{error}");
        let error = Device::of(&samples::port(json!({"kind": "tap"}))).unwrap_err().to_string();
        assert!(error.contains("TAP interface") && error.contains("--for firecracker"), "{error}");
        let error = Device::of(&samples::port(json!({"kind": "gpu"}))).unwrap_err().to_string();
        assert!(error.contains("kind gpu") && error.contains("daemon's release"), "{error}");
    }
}
