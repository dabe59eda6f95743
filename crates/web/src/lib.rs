//! The read-only web page of causewayd: groups, ports, links and their traffic, live.
//!
//! The library of `causeway web`, which runs in a process of its own:
//!
//! ```text
//!  browser ──▶ HttpServer ──▶ Site ──▶ files of the page
//!  browser ──▶ (threads)       └─────▶ Poller: the last state as JSON
//!                                        │ one thread, each interval while browsers ask
//!                                        ▼
//!                            ControlSource: control socket of causewayd
//! ```
//!
//! [`WebServer::start`] serves a listening socket of the caller, which restricts the process first.
//! Browsers poll `/api/state` with an entity tag; the daemon is asked by one thread, whatever the
//! number of browsers, and not at all from 15 s after the last request on. The process only reads:
//! there is no request that changes anything, and the state has no field for paths, keys and users;
//! texts of faults, warnings and findings pass as they are.
//!
//! At most [`limits::WEB_CONNECTIONS_MAX`] (64) connections are served; a further one takes the
//! place of a slow browser's, or is closed ([`causeway_http::tcp`]). Browsers must address the
//! server by an IP address, `localhost` or a given name (DNS rebinding). There is no authentication
//! and no TLS: who reaches the address sees the state.
//!
//! | module | content |
//! |---|---|
//! | [`source`] | the interface to the daemon, implemented by the caller |
//! | `sample`, `rates`, `talks`, `cluster`, `state` | a sample, and the state that browsers get |
//! | `poller` | the thread that samples |
//! | `hosts`, `site` | the header Host, and the paths |
//! | [`limits`] | limits |
//!
//! # Example
//! ```
//! use std::net::TcpListener;
//! use std::time::Duration;
//!
//! use causeway_model::InfoView;
//! use causeway_web::source::{ControlSource, Finding, LinkView, PortView, SourceError};
//! use causeway_web::{WebOptions, WebServer};
//!
//! /// A daemon that does not run.
//! struct Absent;
//!
//! impl ControlSource for Absent {
//!     fn get(&self, _path: &str) -> Result<serde_json::Value, SourceError> {
//!         Err(SourceError { is_refused: false, text: "no daemon".into() })
//!     }
//!     fn connections(&self, _filter: &serde_json::Value) -> Result<serde_json::Value, SourceError> {
//!         self.get("")
//!     }
//!     fn findings(&self, _: &InfoView, _: &[PortView], _: &[LinkView]) -> Vec<Finding> {
//!         Vec::new()
//!     }
//! }
//!
//! let options = WebOptions {
//!     host_names: Vec::new(),
//!     interval: Duration::from_secs(2),
//!     host: "node-a".into(),
//! };
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut server = WebServer::start(listener, options, Box::new(Absent))?;
//! println!("http://{}/", server.address()?);
//! server.stop();
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod cluster;
mod hosts;
pub mod limits;
mod poller;
mod rates;
mod sample;
mod site;
pub mod source;
mod state;
mod talks;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use causeway_http::{HttpServer, RequestLimits, ServerOptions};

use crate::hosts::HostNames;
use crate::limits::{WEB_CONNECTIONS_EACH_MAX, WEB_CONNECTIONS_MAX, WEB_REQUEST_BYTES_MAX};
use crate::poller::Poller;
use crate::site::Site;
use crate::source::ControlSource;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Names by which browsers may address the server, besides IP addresses and `localhost`; at
    /// most [`limits::HOST_NAMES_MAX`] (64) are used.
    pub host_names: Vec<String>,
    /// Interval of samples.
    pub interval: Duration,
    /// Name of this host, for display.
    pub host: String,
}

/// A running server. [`WebServer::stop`] stops it; dropping it does not.
#[derive(Debug)]
pub struct WebServer {
    server: HttpServer,
    poller: Arc<Poller>,
}

impl WebServer {
    /// Starts to serve a listener, with threads of its own.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        listener: TcpListener,
        options: WebOptions,
        source: Box<dyn ControlSource>,
    ) -> std::io::Result<Self> {
        let mut names = options.host_names;
        names.truncate(limits::HOST_NAMES_MAX);
        let site = Site::new(HostNames::new(names));
        let poller = Arc::new(Poller::start(source, options.interval, options.host)?);
        let of_handler = poller.clone();
        let handler = move |request: &_| site.answer(request, &of_handler);
        let server = HttpServer::serve(listener, SERVER, Arc::new(handler))?;
        Ok(Self { server, poller })
    }

    /// Returns the listening address.
    ///
    /// # Errors
    /// The socket is not bound.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.server.address()
    }

    /// Stops to accept browsers and to sample the daemon.
    pub fn stop(&mut self) {
        self.server.stop();
        self.poller.stop();
    }
}

/// Bounds of the server.
const SERVER: ServerOptions = ServerOptions {
    name: "web",
    connections: WEB_CONNECTIONS_MAX,
    connections_each: WEB_CONNECTIONS_EACH_MAX,
    requests: RequestLimits {
        bytes: WEB_REQUEST_BYTES_MAX,
        file_bytes: WEB_REQUEST_BYTES_MAX,
        file_paths: &[],
    },
};
