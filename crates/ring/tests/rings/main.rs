//! Tests of both ring formats: one program, because linking is most of the build.

mod common;
mod crossing;
mod differential;
mod differential_packed;
mod hostile;
mod hostile_bytes;
mod hostile_notifications;
mod hostile_packed;
mod hostile_races;
mod located_packed;
mod loom_handshake;
mod oracle;
mod parking;
mod recovery;
mod recovery_packed;
mod waking;
