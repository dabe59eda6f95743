//! Tests of the MXoE engine, one module per subject.

mod common;
mod damaged_packets;
mod deferred;
mod discovery_wait;
mod held_peers;
mod hostile;
mod hostile_claims;
mod interop;
mod jumbo_pull;
mod local;
mod network;
mod recovery;
mod reorder_quota;
mod restart;
mod seeds;
mod sequence_conflict;
mod unreported_sends;
mod watch;
mod windows;
