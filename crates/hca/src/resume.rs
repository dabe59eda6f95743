//! Decides how a function continues for a guest that an earlier daemon served.
//!
//! The holder has granted the guest's memory again, assigned the interrupt vectors, and repeated
//! the driver's register writes. A function with a whole record continues with the objects, queues
//! and positions of before ([`crate::record_file`]); the guest notices nothing. The records of the
//! adapters of a group are restored one after another; requests of restored queue pairs to an
//! adapter that is not restored yet wait for it, up to [`crate::limits::RESTART_WAIT_NS`] (60 s),
//! before their retries begin.
//!
//! Without a usable record (the journal was full, another version wrote it, a restoration of it
//! ended causewayd, or 3 restorations were followed by no call of the port) the objects of the
//! driver are lost with the earlier daemon. Then a function that the driver used reports an
//! *internal error*: the interface is disabled and the health syndrome is set. The driver polls the
//! health about every 2 s, destroys its objects without commands, and sets the function up again
//! from the beginning. Programs with open verbs devices get `IBV_EVENT_DEVICE_FATAL`.
//!
//! Without a command queue, since the start or the last reset, a function has no objects, continues
//! as it is, and begins a record. So does a function whose frontend no earlier daemon has served:
//! the record is that of another guest. [`crate::service`] calls [`resume`] in the dispatcher's
//! thread, once for a connection; the frontend's commands wait until it returns. A call takes the
//! time of the recorded commands, at most those of a journal of 64 MiB.

use causeway_mlx5::{Function, RestoreError, Restored};
use causeway_verbs::Subnet;

use crate::adapter_port::AdapterPort;

/// How a function continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// The driver had not set the function up.
    Unused,
    /// The function continues from its record.
    Restored(Restored),
    /// The function reports an internal error, and its driver sets it up again.
    Failed(Option<RestoreError>),
}

/// Continues the function of a port.
pub(crate) fn resume(port: &mut AdapterPort, subnet: &mut Subnet<Function>) -> Resumption {
    if port.registers.command_queue() == 0 || !port.registers.is_resuming() {
        // The record, if any, is that of an earlier guest, or of the time before a reset.
        if let (Some(file), Some(own)) = (&mut port.record, subnet.adapter_mut(port.adapter)) {
            file.begin(own.queues_mut());
        }
        return Resumption::Unused;
    }
    let restored = port.record.as_mut().map(|file| file.restore(subnet, port.adapter));
    match restored {
        // The record is empty if the objects were lost before, with the connection of the frontend.
        Some(Ok(restored)) if restored.entries > 0 => Resumption::Restored(restored),
        other => {
            port.registers.fail();
            Resumption::Failed(other.and_then(Result::err))
        }
    }
}
