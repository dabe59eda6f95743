//! The control plane of TAP ports: joins each port to the service that forwards the group's frames, as
//! a station. If that service refuses, for example because another port of the group has the address,
//! the port is deleted again. The fabric's registry calls it in the thread of the operator's command.

use causeway_fabric::station_control::StationControl;
use causeway_fabric::{Control, Controller};
use causeway_model::{CommandError, PortSpec};

use crate::service::NAME;

/// Controller of the TAP ports of all groups.
#[derive(Debug)]
pub(crate) struct TapController(StationControl);

impl Default for TapController {
    fn default() -> Self {
        Self(StationControl::new(NAME))
    }
}

impl Controller for TapController {
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
