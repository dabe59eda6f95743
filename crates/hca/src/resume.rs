//! Decides how a function continues for a guest that an earlier daemon served.
//!
//! The holder has granted the guest's memory again, assigned the interrupt vectors, and repeated
//! the driver's register writes. The objects of the driver (queue pairs, regions, event queues) are
//! lost with the earlier daemon. So a function that the driver used reports an *internal error*:
//! the interface is disabled and the health syndrome is set. The driver polls the health about
//! every 2 s, destroys its objects without commands, and sets the function up again from the
//! beginning. Programs with open verbs devices get `IBV_EVENT_DEVICE_FATAL`.
//!
//! A function whose driver has set no command queue, since the start or the last reset, has no
//! objects and continues as it is. [`crate::service`] calls [`resume`] in the dispatcher's thread,
//! once for a connection; the frontend's commands wait until it returns. It takes constant time and
//! does not fail.

use crate::adapter_port::AdapterPort;

/// How a function continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// The driver had not set the function up.
    Unused,
    /// The function reports an internal error, and its driver sets it up again.
    Failed,
}

/// Continues the function of a port.
pub(crate) fn resume(port: &AdapterPort) -> Resumption {
    if port.registers.command_queue() == 0 {
        return Resumption::Unused;
    }
    port.registers.fail();
    Resumption::Failed
}
