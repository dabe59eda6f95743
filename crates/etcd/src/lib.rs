//! The process `causeway-directory`, between a daemon and etcd.
//!
//! The only program of Causeway with a client of etcd. It reads the addresses of this host from the
//! daemon over the control socket, writes signed claims to etcd, follows the hosts and claims of
//! the site, and sends them to the daemon, which opens the links. The rules are in
//! `causeway-cluster`, which performs no I/O; this crate has the connections, timers and files.
//! Without the process, or without etcd, a daemon forwards as before: only changes wait.
//!
//! The crate blocks its threads ([`process`] lists them) and needs no asynchronous runtime. Every
//! answer is bounded in size and time ([`limits`]), except that a watch has no limit of time.
//!
//! ```
//! use causeway_etcd::client::watch_message;
//! use causeway_etcd::client::WatchMessage;
//!
//! let line = br#"{"result":{"header":{"revision":"9"},"created":true}}"#;
//! let (message, growth) = watch_message(line).expect("JSON");
//! assert!(matches!(message, WatchMessage::Events(events, 9) if events.is_empty()) && growth == 0);
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`process`] | the main thread: sessions, timers, reports |
//! | [`report`] | differences of the site for the daemon |
//! | [`watch`] | the thread that follows etcd |
//! | [`message`] | what the threads send to the main thread |
//! | [`client`] | requests to etcd's JSON gateway |
//! | [`list`] | lists of keys, in pages |
//! | [`control`] | requests to the daemon |
//! | [`http`] | HTTP/1.1 over a blocking stream |
//! | [`stream`] | TCP and TLS |
//! | [`snapshot`], [`keys`], [`new_file`] | files |
//! | [`init`], [`tokens`] | the verbs that prepare a site, and admit hosts |
//! | [`host_name`] | names of hosts |
//! | [`join`] | the verb that prepares a host |
//! | [`groups`] | the verbs about groups with their policies |
//! | [`verbs`] | evictions, export and import |
//! | [`records`] | the records that verbs read, and failures of verbs |
//! | [`args`] | options |
//! | [`sandbox`] | restrictions of the process |
//! | [`limits`] | limits |

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod args;
pub mod client;
pub mod control;
pub mod groups;
pub mod host_name;
pub mod http;
pub mod init;
pub mod join;
pub mod keys;
pub mod limits;
pub mod list;
pub mod message;
pub mod new_file;
pub mod process;
pub mod records;
pub mod report;
pub mod sandbox;
pub mod snapshot;
pub mod stream;
pub mod tokens;
pub mod verbs;
pub mod watch;
