//! How a service is added to the fabric.

use std::fmt;

use causeway_model::Kind;

use crate::controller::{Controller, NoCommands};
use crate::service::Service;

/// Makes a service without ports: each shard has its own.
pub type Maker = fn() -> Box<dyn Service>;

/// An ability that other services use without knowing which service has it, in words that complete
/// "a service that …". It is declared beside the requests that go with it, for example in
/// [`crate::carrier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability(pub &'static str);

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// All that the fabric has to know of a service.
#[derive(Debug, Clone, Copy)]
pub struct Registration {
    /// The name by which operators know the service; no other service has it.
    pub name: &'static str,
    /// The kinds of ports that the service serves.
    pub kinds: &'static [&'static Kind],
    /// Makes the service of a shard.
    pub make: Maker,
    /// Makes the control-plane part, once.
    pub controller: fn() -> Box<dyn Controller>,
    /// Requests that shards of the service answer on behalf of other services.
    pub capabilities: &'static [Capability],
}

impl Registration {
    /// Registers a service without commands and capabilities.
    pub const fn new(name: &'static str, make: Maker) -> Self {
        Self { name, kinds: &[], make, controller: || Box::new(NoCommands), capabilities: &[] }
    }

    /// Sets the kinds of ports.
    #[must_use]
    pub const fn with_kinds(self, kinds: &'static [&'static Kind]) -> Self {
        Self { kinds, ..self }
    }

    /// Sets the control-plane part.
    #[must_use]
    pub const fn with_controller(self, controller: fn() -> Box<dyn Controller>) -> Self {
        Self { controller, ..self }
    }

    /// Sets the capabilities.
    #[must_use]
    pub const fn with_capabilities(self, capabilities: &'static [Capability]) -> Self {
        Self { capabilities, ..self }
    }
}
