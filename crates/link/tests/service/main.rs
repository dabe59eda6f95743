//! Tests of links between hosts: one program, because linking is most of the build.

mod addresses;
mod bare;
mod common;
mod dormancy;
mod frames;
mod hostile_datagrams;
mod hostile_fragments;
mod hostile_sockets;
mod hosts;
mod late;
mod many;
mod marks;
mod on_demand;
mod policies;
mod raw;
mod rings;
mod room;
mod routes;
mod sessions;
mod shards;
mod sockets;
mod storms;
mod streams;
mod tls;
mod tunnels;
mod verified;
