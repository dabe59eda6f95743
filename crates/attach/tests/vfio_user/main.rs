//! The vfio-user server in its control thread, against the native client and against messages of
//! every wrong kind.

mod bench;
mod conversation;
mod hostile;
mod interrupts;
mod memory;
mod resume;
mod stalls;
