//! Kinds of ports, and the options of one port.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::draft::derived_mac;
use crate::schema::{Field, FieldInfo, ValueType, check};
use crate::{Mac, Name};

/// A kind of ports, described for everything outside its service.
#[derive(Debug)]
pub struct Kind {
    /// The name, as operators write it.
    pub name: &'static str,
    /// What such a port is, in a few words.
    pub help: &'static str,
    /// The keys that not all kinds have.
    pub fields: &'static [&'static [Field]],
    /// Whether a guest's memory is behind the port.
    pub has_guest: bool,
    /// Whether the port sends and receives Ethernet frames: routes may name it, links carry for it.
    pub is_network: bool,
    /// Whether a frontend does not connect again after the daemon was away, so that the holder keeps
    /// it by default.
    pub loses_frontend: bool,
    hooks: Hooks,
}

/// Options by key.
type Values = Map<String, Value>;

/// The typed half of a kind.
#[derive(Debug, Clone, Copy)]
struct Hooks {
    complete: fn(&mut Map<String, Value>, &PortContext<'_>),
    normalise: fn(&Values) -> Result<Values, String>,
    check: fn(&Map<String, Value>) -> Result<(), String>,
    interface: fn(&Map<String, Value>) -> Option<String>,
    device: fn(&Map<String, Value>) -> Option<Device>,
}

/// A virtio device, as far as the holder knows it while the daemon is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Number of virtqueues.
    pub queues: u16,
    /// Most entries of a virtqueue.
    pub ring_size_max: u16,
    /// Text that differs between devices that a guest can tell apart. A frontend is kept only for the
    /// same device, so the text of an option never changes between releases.
    pub identity: String,
}

/// What an option's default may depend on.
#[derive(Debug)]
pub struct PortContext<'a> {
    /// The port's name.
    pub name: &'a Name,
    /// The port's group.
    pub group: &'a Name,
    /// Largest payload that all links of the group carry uncut, in bytes.
    pub links_mtu: u16,
}

impl PortContext<'_> {
    /// Returns the address that follows from the machine, the group and the name.
    pub fn derived_mac(&self) -> Mac {
        derived_mac(self.group, self.name)
    }
}

/// The options of one kind of ports, as their service reads them.
pub trait PortOptions: Serialize + DeserializeOwned {
    /// The kind.
    fn kind() -> &'static Kind;

    /// Fills in defaults that depend on other values.
    fn complete(_values: &mut Map<String, Value>, _port: &PortContext<'_>) {}

    /// Checks what options require of each other.
    ///
    /// # Errors
    /// Says what was expected, and at which key.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The interface of this host that the port opens a raw socket on.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// The virtio device that a frontend sees; `None` where processes attach, which can attach again
    /// by themselves.
    fn device(&self) -> Option<Device> {
        None
    }
}

fn typed<T: PortOptions>(values: &Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(values.clone())).map_err(|error| error.to_string())
}

fn map_of<T: Serialize>(options: &T) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(map)) => map,
        // A struct with named members is always an object.
        _ => Map::new(),
    }
}

impl Kind {
    /// A kind with a guest behind its ports, and none of the other marks.
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
            device: |values| typed::<T>(values).ok()?.device(),
        };
        let (has_guest, is_network, loses_frontend) = (true, false, false);
        Self { name, help, fields, has_guest, is_network, loses_frontend, hooks }
    }

    /// The same kind, for processes: no guest's memory is behind its ports.
    #[must_use]
    pub const fn without_guest(self) -> Self {
        Self { has_guest: false, ..self }
    }

    /// The same kind, whose ports send and receive Ethernet frames.
    #[must_use]
    pub const fn on_network(self) -> Self {
        Self { is_network: true, ..self }
    }

    /// The same kind, whose frontends do not connect again.
    #[must_use]
    pub const fn losing_frontend(self) -> Self {
        Self { loses_frontend: true, ..self }
    }

    /// Returns the keys that not all kinds have.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.fields.iter().flat_map(|list| list.iter())
    }

    /// Fills in the defaults, and returns the options that belong to the kind's own type.
    pub(super) fn options(
        &'static self,
        mut values: Map<String, Value>,
        port: &PortContext<'_>,
    ) -> Result<PortKind, String> {
        crate::schema::fill(self.fields(), &mut values);
        (self.hooks.complete)(&mut values, port);
        let options = (self.hooks.normalise)(&values)?;
        Ok(PortKind { kind: self, options })
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

/// The kind of one port, with its options: a checked table, which the service reads as its own type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortKind {
    kind: &'static Kind,
    options: Map<String, Value>,
}

impl PortKind {
    /// The kind of `options`, with these options.
    pub fn of<T: PortOptions>(options: T) -> Self {
        Self { kind: T::kind(), options: map_of(&options) }
    }

    /// Returns the options as the type of their service, or `None` if the port is of another kind.
    pub fn get<T: PortOptions>(&self) -> Option<T> {
        if self.kind == T::kind() { typed(&self.options).ok() } else { None }
    }

    /// The kind.
    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// The name of the kind.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// The options, by key.
    pub fn options(&self) -> &Map<String, Value> {
        &self.options
    }

    /// Gives an option the value that another port's options of the same kind have for it.
    pub fn keep(&mut self, key: &str, from: &Self) {
        if let (true, Some(value)) = (self.kind == from.kind, from.options.get(key)) {
            self.options.insert(key.to_owned(), value.clone());
        }
    }

    /// Returns the sockets that the port has beside its own, by key.
    pub fn sockets(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let is_socket = |field: &&Field| matches!(field.value, ValueType::SocketPath(_));
        let fields = self.kind.fields().filter(is_socket);
        fields.filter_map(|field| {
            Some((field.key, Path::new(self.options.get(field.key)?.as_str()?)))
        })
    }

    /// Returns the values that no other port of the kind and group may have, by key.
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

    /// Returns the interface of this host that the port opens a raw socket on.
    pub fn interface(&self) -> Option<String> {
        (self.kind.hooks.interface)(&self.options)
    }

    /// Returns the virtio device of the port; `None` if processes attach to it.
    pub fn device(&self) -> Option<Device> {
        (self.kind.hooks.device)(&self.options)
    }

    /// Checks ranges, and what options require of each other.
    ///
    /// # Errors
    /// Says what was expected.
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

/// A kind of ports as the control API shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KindInfo {
    /// The name.
    pub name: String,
    /// What such a port is.
    #[serde(default)]
    pub help: String,
    /// Whether a guest's memory is behind the port.
    #[serde(default)]
    pub has_guest: bool,
    /// The keys that not all kinds have.
    pub options: Vec<FieldInfo>,
}

impl From<&'static Kind> for KindInfo {
    fn from(kind: &'static Kind) -> Self {
        Self {
            name: kind.name.to_owned(),
            help: kind.help.to_owned(),
            has_guest: kind.has_guest,
            options: kind.fields().map(FieldInfo::from).collect(),
        }
    }
}
