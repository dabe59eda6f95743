//! `causeway web` as a process, against dispatchers with real guests and links: its server over
//! sockets, and its page in Chromium.

mod chromium;
mod page;
mod server;
mod world;
