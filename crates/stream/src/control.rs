//! The control plane of the ports: joins each to the service that forwards the group's frames.
//!
//! The fabric's registry calls it in the thread of the operator's command, after it added or deleted a
//! port. [`StationControl`] does the work, and documents its failures.

use causeway_fabric::station_control::StationControl;
use causeway_fabric::{Control, Controller};
use causeway_model::{CommandError, PortSpec};

use crate::service::NAME;

/// The controller of the ports of all groups.
#[derive(Debug)]
pub(crate) struct StreamController(StationControl);

impl Default for StreamController {
    fn default() -> Self {
        Self(StationControl::new(NAME))
    }
}

impl Controller for StreamController {
    fn port_added(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        self.0.port_added(control, port)
    }

    fn port_deleted(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        self.0.port_deleted(control, port)
    }
}
