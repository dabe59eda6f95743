//! What the registry uses of a service beside its controller. Of two services with one name or kind,
//! the first counts.

use causeway_model::{KindDefinition, TraceDefinition};

use crate::capability::Capability;
use crate::service::Maker;

/// A service, without its controller.
#[derive(Debug)]
pub(super) struct ServiceParts {
    pub(super) name: &'static str,
    pub(super) make: Maker,
    pub(super) kinds: &'static [&'static KindDefinition],
    pub(super) capabilities: &'static [Capability],
    pub(super) traces: &'static [TraceDefinition],
}
