//! Registers of the port, read and written by a command (ACCESS_REG).
//!
//! The function has a fixed link: 100 Gbit/s Ethernet, always up. Writes are accepted and change
//! nothing. Registers that the function does not know read as the bytes that the driver sent, so
//! that counters and capabilities of the port read zero. Register 0 is refused with *bad
//! parameter*. [`super::dispatch`] calls the handler in the dispatcher's turn. The MTU is the
//! largest that the port permits, not the driver's choice (`crate::vport` has that). These
//! registers are not those of BAR 0 (`crate::registers`).

use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::registers::{
    ACCESS_DATA, AccessInput, ETHERNET_100G, PAOS, PMTU, PROTOCOL_ETHERNET, PTYS, PVLC, PortLanes,
    PortMtu, PortState, PortType,
};

use super::{Input, Outcome, Output, short};
use crate::function::Function;

/// Port number of the only port.
const PORT: u8 = 1;
/// State of the port: up.
const UP: u8 = 1;

/// Executes ACCESS_REG.
pub(crate) fn access(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let access = AccessInput::parse(input.bytes()).map_err(short)?;
    output.put_truncated(ACCESS_DATA, input.tail(ACCESS_DATA).unwrap_or(&[]));
    match access.register {
        PTYS => output.put_truncated(ACCESS_DATA, &link().to_bytes()),
        PMTU => {
            let mtu = f.objects.vport.mtu_max();
            let port = PortMtu { port: PORT, max: mtu, admin: mtu, operational: mtu };
            output.put_truncated(ACCESS_DATA, &port.to_bytes());
        }
        PVLC => {
            let lanes = PortLanes { port: PORT, capability: 1, admin: 1, operational: 1 };
            output.put_truncated(ACCESS_DATA, &lanes.to_bytes());
        }
        PAOS => {
            let state = PortState { port: PORT, admin: UP, operational: UP };
            output.put_truncated(ACCESS_DATA, &state.to_bytes());
        }
        0 => return Err(Status::BadParameter),
        _ => {}
    }
    Ok(())
}

/// Returns the types and speeds of the link.
fn link() -> PortType {
    PortType {
        port: PORT,
        protocol: PROTOCOL_ETHERNET,
        capability: ETHERNET_100G,
        admin: ETHERNET_100G,
        operational: ETHERNET_100G,
        ..PortType::default()
    }
}
