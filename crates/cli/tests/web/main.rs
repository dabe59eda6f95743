//! `causeway web` as a process, against dispatchers with real guests and links: its server over
//! sockets, and its page in Chromium.

#[path = "../../../daemon/tests/common/mod.rs"]
mod common;

mod chromium;
mod page;
mod server;
mod world;
