//! The VNET language: commands about the links and routes of one group, over TCP and from files.
//!
//! VNET/U's servers accepted one command a line, after `HELLO <password> <version>`. VNET/P's
//! kernel module accepted `ADD …` and `DEL <number>`, in one file for links and one for routes.
//! This module accepts both. Keywords are case-insensitive; words are separated by blanks; a line
//! has at most 256 bytes; a line that begins with `#` is a comment.
//!
//! ```text
//! HELLO <password> 0.9 [COMMAND]             first, over TCP; a command may follow on its line
//! ADDLINK <host> <control port> <data port> <remote password> UDP|TCP
//! DELETELINK <host> <control port> <remote password> UDP|TCP
//! ADDROUTE <source> <destination> INTERFACE|EDGE <where> [INTERFACE|EDGE|ANY [<where>]]
//! DELETEROUTE (as ADDROUTE)
//! REGISTERLINK MYSELF <data port> UDP        DEREGISTERLINK MYSELF UDP
//! ADD LINK <host> <port> [UDP|TCP]           DEL LINK <number>
//! ADD ROUTE <source> <destination> INTERFACE|EDGE <where> INTERFACE|EDGE|ANY [<where>]
//! DEL ROUTE <number>                         LIST LINKS|ROUTES|DEVICES, also DEVICES?
//! DONE                                       ends the session
//! ```
//!
//! `LINK` and `ROUTE` may be omitted after `ADD`: a link has two or three words, a route five or
//! six. `DEL` with a number alone is refused. Addresses are `any`, `none`, a MAC address or `not-`
//! and a MAC address. An *edge* is a link, by its name or by its host's name or address; an
//! *interface* is a port, by its name or MAC address, or a raw link, by its name or interface.
//! Links created by commands are named after their host's address.
//!
//! Over TCP the answer to a command is its lines, if any, and a last line that begins with `OK` or
//! `ERROR`. As between VNET/U's servers, `ADDLINK` of a UDP link creates both ends: it sends
//! `REGISTERLINK` with the remote password to the server at the peer's control port before anything
//! changes here. `DELETELINK` deletes this end and then sends `DEREGISTERLINK`. With control port
//! 0, in files, and for TCP links only this end is created or deleted.
//!
//! The language changes no ports, groups or rules, and adds no links of other kinds than VNET's UDP
//! and TCP; `LIST LINKS` shows all links of the group, `DEL LINK` deletes any of them, and a route
//! may name any. There is no encryption: the password passes the network in plain text. Changes of
//! a session or of `POST /v1/vnet` are kept in the state file as those of the control API are
//! ([`crate::kept`]), the latter unless they are ephemeral; the links and routes of `vnet_file`
//! come from that file at each start.
//!
//! A line from TCP passes [`server`] (bytes to lines), [`session`] (password),
//! [`parse`](mod@parse), [`plan`] (names to specifications), and [`crate::fabric::FabricControl`];
//! a file passes [`file`](mod@file), which uses the same parser and planner. [`crate::lifecycle`]
//! starts the server and executes `vnet_file`; `POST /v1/vnet` executes other files.

pub mod command;
pub mod file;
pub mod parse;
pub mod password;
pub mod plan;
pub mod print;
pub mod registration;
pub mod server;
pub mod session;
pub mod source;

pub use command::{VnetCommand, VnetTransport};
pub use parse::{SyntaxError, parse};
