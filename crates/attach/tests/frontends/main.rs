//! Tests of attachments through their frontends: one program, because linking is most of the build.

#[path = "../common/mod.rs"]
mod common;
mod conversation;
mod dirty;
mod hostile_memory;
mod hostile_messages;
mod hostile_notifications;
mod hostile_queues;
mod local_stuck;
mod loopback;
mod matrix;
mod packed;
mod rust_vmm;
