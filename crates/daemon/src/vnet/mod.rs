//! The VNET language: links and routes of one group, spoken over TCP and read from files.
//!
//! VNET/U's servers took one command a line, begun by `HELLO <password> <version>`; VNET/P's
//! kernel module took `ADD …` and `DEL <number>` in one file for links and one for routes. Both are
//! understood here. Keywords may be in any case; words are parted by blanks; a line has at most
//! 256 bytes; `#` begins a line that is passed over.
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
//! `LINK` and `ROUTE` may be left out after `ADD`: a link has two or three words, a route five or
//! six. Addresses are `any`, `none`, a MAC address or `not-` and one. An *edge* is a link, by its
//! name, its host's name or address; an *interface* is a port, by its name or MAC address, or a raw
//! link, by its name or interface. A link made so is called after its host's address.
//!
//! Over TCP each command is answered by its lines, if it has any, and then by one that begins with
//! `OK` or `ERROR`. As between VNET/U's servers, `ADDLINK` of a UDP link makes both ends: the server
//! at the peer's control port is told `REGISTERLINK` with the remote password, before anything
//! changes here; `DELETELINK` deletes ours and then tells `DEREGISTERLINK`. With control port 0, in
//! files and for TCP links only our end is made or deleted.

pub mod file;
pub mod parse;
pub mod password;
pub mod plan;
pub mod print;
pub mod server;
pub mod session;
pub mod source;
pub mod speech;
pub mod tell;

pub use parse::{SyntaxError, parse};
pub use speech::{Command, Transport};
