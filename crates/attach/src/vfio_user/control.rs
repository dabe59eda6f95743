//! Starts the thread that answers the messages of a frontend.
use super::device::{DeviceDescription, Registers};
use super::fault::Reason;
use super::interrupts::Vectors;
use super::link::Link;
use causeway_host::fd::receive::UntrustedSocket;
#![expect(dead_code, reason = "the thread follows")]
use std::sync::Arc;

pub(super) fn start(
    port: &str,
    stream: UntrustedSocket,
    description: DeviceDescription,
    registers: Arc<dyn Registers>,
    vectors: Arc<Vectors>,
) -> Result<Arc<Link>, (UntrustedSocket, Reason)> {
    let _ = (port, description, registers, vectors);
    Err((stream, Reason::ThreadLost))
}
