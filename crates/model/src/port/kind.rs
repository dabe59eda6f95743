//! Kinds of ports, and the options of a port.
//!
//! A service declares a [`KindDefinition`] with the type of its options ([`PortOptions`]). Other
//! crates see the options as a checked table ([`PortKind`]), so that they need no change for a new
//! kind. [`super::read()`] finds the kind of a table and fills in its defaults; the service reads
//! the table as its own type by [`PortKind::get`].
//!
//! Kinds are known at compile time; the daemon passes its list in [`super::ReadContext`]. Two kinds
//! are equal if their names are. Reading options converts the table each time, so services read
//! them when a port is added and not on the data path, mostly in the thread of their shard. A kind
//! cannot have keys with the names of keys of every port.
//!
//! [`super::read()`] checks the options of a file or command, and the registry of the fabric checks
//! every port again ([`super::PortSpec::check`]) before its service sees it. A kind made by
//! [`PortKind::of`], as tests do, is not checked until then.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::vm::VM_KEY;
use crate::draft::{derived_mac, derived_nic_name};
use crate::schema::{Field, FieldInfo, ValueType, check};
use crate::{CaptureFormat, Mac, Name};

/// A kind of ports, as everything outside its service sees it.
#[derive(Debug)]
pub struct KindDefinition {
    /// Name of the kind, as operators write it.
    pub name: &'static str,
    /// Description of a port of the kind, in a few words.
    pub help: &'static str,
    /// The keys of the kind, beside the keys of every port.
    pub fields: &'static [&'static [Field]],
    /// Whether the port has a guest, whose memory the daemon maps.
    pub has_guest: bool,
    /// Whether the port sends and receives Ethernet frames: routes may name it, and links carry its
    /// frames.
    pub is_network: bool,
    /// Whether frontends attach to the port, by a socket. Ports without frontends have no socket.
    pub has_frontend: bool,
    /// Whether frontends do not reconnect after the daemon was away. The holder keeps such
    /// frontends by default.
    pub loses_frontend: bool,
    /// Whether processes resume their endpoints through the next daemon: a stop leaves the port to
    /// them.
    pub resumes: bool,
    /// The packets that a capture at the port has; `None` if the port cannot be captured.
    pub captures: Option<CaptureFormat>,
    hooks: Hooks,
}

/// Options by key.
type Values = Map<String, Value>;

/// Functions of the option type, called without knowing the type.
#[derive(Debug, Clone, Copy)]
struct Hooks {
    /// [`PortOptions::complete`].
    complete: fn(&mut Map<String, Value>, &PortContext<'_>),
    /// Converts options to their type and back: values that the JSON form omits drop out.
    normalise: fn(&Values) -> Result<Values, String>,
    /// [`PortOptions::check`].
    check: fn(&Map<String, Value>) -> Result<(), String>,
    /// [`PortOptions::interface`].
    interface: fn(&Map<String, Value>) -> Option<String>,
    /// [`PortOptions::address`].
    address: fn(&Map<String, Value>) -> Option<String>,
    /// [`PortOptions::device`].
    device: fn(&Map<String, Value>) -> Option<DeviceInfo>,
}

/// The extension of the socket at which the daemon serves a held port for the holder.
pub const HELD_EXTENSION: &str = "inner";

/// The protocol by which frontends attach to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontendProtocol {
    /// vhost-user: virtio devices.
    VhostUser,
    /// vfio-user: PCI functions.
    VfioUser,
}

/// A device, as far as the holder must know it while the daemon is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The protocol of its frontends.
    pub protocol: FrontendProtocol,
    /// Number of virtqueues; 0 for a PCI function.
    pub queues: u16,
    /// Largest number of entries of a virtqueue; 0 for a PCI function.
    pub ring_size_max: u16,
    /// Text that differs between devices that a guest can distinguish. A frontend is kept only for
    /// the same device, so the text must not change between releases.
    pub identity: String,
}

/// The values that defaults of options may depend on.
#[derive(Debug)]
pub struct PortContext<'a> {
    /// The port's name.
    pub name: &'a Name,
    /// The port's group.
    pub group: &'a Name,
    /// Largest payload that all links of the group carry without fragmentation, in bytes.
    pub links_mtu: u16,
}

impl PortContext<'_> {
    /// Returns the address derived from the machine, the group and the name.
    pub fn derived_mac(&self) -> Mac {
        derived_mac(self.group, self.name)
    }

    /// Returns the NIC name derived from the host's name and the port's name.
    pub fn derived_nic_name(&self) -> String {
        derived_nic_name(self.name)
    }
}

/// The options of one kind of ports, as their service reads them.
pub trait PortOptions: Serialize + DeserializeOwned {
    /// Returns the kind.
    fn kind() -> &'static KindDefinition;

    /// Fills in defaults that depend on other values.
    fn complete(_values: &mut Map<String, Value>, _port: &PortContext<'_>) {}

    /// Checks conditions between options.
    ///
    /// # Errors
    /// The key and its expected value.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the interface of this host on which the port opens a raw socket.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Returns the network address that the port has instead of its Unix socket.
    fn address(&self) -> Option<String> {
        None
    }

    /// Returns the device that a frontend sees. `None` for ports to which processes attach:
    /// they can attach again by themselves.
    fn device(&self) -> Option<DeviceInfo> {
        None
    }
}

/// Converts options to their type.
fn typed<T: PortOptions>(values: &Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(values.clone())).map_err(|error| error.to_string())
}

/// Converts options of a type to a table.
fn map_of<T: Serialize>(options: &T) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(map)) => map,
        // A struct with named members is always an object.
        _ => Map::new(),
    }
}

impl KindDefinition {
    /// Returns a kind of ports with a guest and a frontend, and no other property.
    pub const fn new<T: PortOptions>(
        name: &'static str,
        help: &'static str,
        fields: &'static [&'static [Field]],
    ) -> Self {
        let hooks = Hooks {
            complete: T::complete,
            normalise: |values| typed::<T>(values).map(|options| map_of(&options)),
            check: |values| typed::<T>(values).and_then(|options| options.check()),
            interface: |values| typed::<T>(values).ok()?.interface().map(str::to_owned),
            address: |values| typed::<T>(values).ok()?.address(),
            device: |values| typed::<T>(values).ok()?.device(),
        };
        let (has_guest, is_network, has_frontend, loses_frontend) = (true, false, true, false);
        let captures = None;
        Self {
            name,
            help,
            fields,
            has_guest,
            is_network,
            has_frontend,
            loses_frontend,
            resumes: false,
            captures,
            hooks,
        }
    }

    /// Returns the kind for processes: its ports have no guest.
    #[must_use]
    pub const fn without_guest(self) -> Self {
        Self { has_guest: false, ..self }
    }

    /// Returns the kind of ports to which nothing attaches: they have neither guest nor socket.
    #[must_use]
    pub const fn without_frontend(self) -> Self {
        Self { has_guest: false, has_frontend: false, ..self }
    }

    /// Returns the kind with ports that send and receive Ethernet frames, which captures have.
    #[must_use]
    pub const fn on_network(self) -> Self {
        Self { is_network: true, captures: Some(CaptureFormat::Ethernet), ..self }
    }

    /// Returns the kind with captures of this format. Its service answers the fabric's request
    /// `JoinCapture`.
    #[must_use]
    pub const fn captured_as(self, format: CaptureFormat) -> Self {
        Self { captures: Some(format), ..self }
    }

    /// Returns the kind with frontends that do not reconnect.
    #[must_use]
    pub const fn losing_frontend(self) -> Self {
        Self { loses_frontend: true, ..self }
    }

    /// Returns the kind with processes that resume their endpoints through the next daemon.
    #[must_use]
    pub const fn resuming(self) -> Self {
        Self { resumes: true, ..self }
    }

    /// Returns the keys of the kind, beside the keys of every port.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.fields.iter().flat_map(|list| list.iter())
    }

    /// Fills in the defaults and returns the options in the form of the kind's own type.
    pub(super) fn options(
        &'static self,
        mut values: Map<String, Value>,
        port: &PortContext<'_>,
    ) -> Result<PortKind, String> {
        crate::schema::fill(self.fields(), &mut values);
        (self.hooks.complete)(&mut values, port);
        let mut options = (self.hooks.normalise)(&values)?;
        // The type of the kind has no member for the key, which all kinds with a guest share.
        if let (true, Some(vm)) = (self.fields().any(|f| f.key == VM_KEY), values.remove(VM_KEY)) {
            options.insert(VM_KEY.to_owned(), vm);
        }
        Ok(PortKind { kind: self, options })
    }
}

impl PartialEq for KindDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for KindDefinition {}

/// The kind of one port with its options: a checked table, which the service reads as its own type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortKind {
    kind: &'static KindDefinition,
    options: Map<String, Value>,
}

impl PortKind {
    /// Returns the kind of `options` with these options.
    pub fn of<T: PortOptions>(options: T) -> Self {
        Self { kind: T::kind(), options: map_of(&options) }
    }

    /// Returns the options as the type of their service, or `None` if the port is of another kind.
    pub fn get<T: PortOptions>(&self) -> Option<T> {
        if self.kind == T::kind() { typed(&self.options).ok() } else { None }
    }

    /// Returns the kind of the port.
    pub fn kind(&self) -> &'static KindDefinition {
        self.kind
    }

    /// Returns the name of the kind.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Returns the options by key.
    pub fn options(&self) -> &Map<String, Value> {
        &self.options
    }

    /// Copies the value of an option from another port of the same kind.
    pub fn keep(&mut self, key: &str, from: &Self) {
        if let (true, Some(value)) = (self.kind == from.kind, from.options.get(key)) {
            self.options.insert(key.to_owned(), value.clone());
        }
    }

    /// Returns the Ethernet address of a port that sends and receives frames.
    pub fn mac(&self) -> Option<Mac> {
        let address = self.options.get("mac").filter(|_| self.kind.is_network)?;
        address.as_str()?.parse().ok()
    }

    /// Returns the sockets of the port beside its own, by key.
    pub fn sockets(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let is_socket = |field: &&Field| matches!(field.value, ValueType::SocketPath(_));
        let fields = self.kind.fields().filter(is_socket);
        fields.filter_map(|field| {
            Some((field.key, Path::new(self.options.get(field.key)?.as_str()?)))
        })
    }

    /// Returns the values that must be unique among the ports of the kind and group, by key.
    pub fn unique(&self) -> impl Iterator<Item = (&'static str, String)> {
        let fields = self.kind.fields().filter(|field| field.is_unique);
        fields.filter_map(|field| {
            let shown = match self.options.get(field.key)? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            Some((field.key, shown))
        })
    }

    /// Returns the interface of this host on which the port opens a raw socket.
    pub fn interface(&self) -> Option<String> {
        (self.kind.hooks.interface)(&self.options)
    }

    /// Returns the network address that the port has instead of its Unix socket.
    pub fn address(&self) -> Option<String> {
        (self.kind.hooks.address)(&self.options)
    }

    /// Returns the device that a frontend of the port sees; `None` if processes attach to the port.
    pub fn device(&self) -> Option<DeviceInfo> {
        (self.kind.hooks.device)(&self.options)
    }

    /// Checks ranges, and conditions between options.
    ///
    /// # Errors
    /// The first invalid option, with its expected value.
    pub fn check(&self) -> Result<(), String> {
        let own = self.kind.fields().filter(|field| self.options.contains_key(field.key));
        let problem = check(own, &self.options).into_iter().next();
        problem.map_or(Ok(()), |problem| Err(problem.to_string()))?;
        (self.kind.hooks.check)(&self.options)
    }
}

impl Serialize for PortKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.options.len().saturating_add(1)))?;
        map.serialize_entry("kind", self.kind.name)?;
        for (key, value) in &self.options {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A kind of ports in the control API.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KindInfo {
    /// Name of the kind.
    pub name: String,
    /// Description of a port of the kind.
    #[serde(default)]
    pub help: String,
    /// Whether the port has a guest, whose memory the daemon maps.
    #[serde(default)]
    pub has_guest: bool,
    /// The packets that a capture at the port has: `ethernet` or `vsock`; absent if the port cannot
    /// be captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captures: Option<String>,
    /// Whether frontends attach to the port, by a socket.
    #[serde(default = "yes")]
    pub has_frontend: bool,
    /// The keys of the kind, beside the keys of every port.
    pub options: Vec<FieldInfo>,
}

/// Returns the value of an older daemon, whose kinds all have frontends.
const fn yes() -> bool {
    true
}

impl From<&'static KindDefinition> for KindInfo {
    fn from(kind: &'static KindDefinition) -> Self {
        Self {
            name: kind.name.to_owned(),
            help: kind.help.to_owned(),
            has_guest: kind.has_guest,
            captures: kind.captures.map(|format| format.as_str().to_owned()),
            has_frontend: kind.has_frontend,
            options: kind.fields().map(FieldInfo::from).collect(),
        }
    }
}
