//! Tests of the service through its ports: one program, because linking is most of the build.

mod client_mode;
mod clones;
#[path = "../common/mod.rs"]
mod common;
mod departures;
mod dispatchers;
mod floods;
mod forwarding;
mod hostile_guests;
mod hostile_notifications;
mod hostile_races;
mod hostile_reconnects;
mod hostile_sparse;
mod hostile_turns;
mod offload;
mod offloads_between_ports;
mod segments;
mod table;
mod turns;
mod waiting;
