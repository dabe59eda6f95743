//! Serves `GET /metrics` on a TCP address of this host, for scrapers without access to the control
//! socket (`[metrics] listen`).
//!
//! Only addresses of the loopback interface are configurable: every process of the host may read
//! the metrics, and nothing else is served (404; 405 for another method). At most
//! [`METRICS_CONNECTIONS_MAX`] (16) connections are served; `causeway_http::tcp` has the time
//! limits, those of the control socket. A further connection takes the place of one that has waited
//! for 250 ms, or is closed (`causeway_http::tcp`). [`crate::lifecycle`] calls [`start`] once, at
//! the end of the start: an address that is in use ends the start. The reply comes from
//! [`super::Metrics`], in the thread of the connection.

use std::net::SocketAddr;
use std::sync::Arc;

use causeway_http::{HttpServer, ServerOptions};

use crate::http::{HttpReply, HttpRequest, REQUEST_LIMITS};
use crate::limits::METRICS_CONNECTIONS_MAX;

/// Returns the reply to `GET /metrics` with this value of the header Accept.
pub type MetricsSource = dyn Fn(&str) -> HttpReply + Send + Sync;

/// Listens at `address` and starts to serve.
///
/// # Errors
/// The address cannot be bound, or the thread cannot be started.
pub fn start(address: SocketAddr, source: Arc<MetricsSource>) -> std::io::Result<HttpServer> {
    let options = ServerOptions {
        name: "metrics",
        connections: METRICS_CONNECTIONS_MAX,
        connections_each: METRICS_CONNECTIONS_MAX,
        requests: REQUEST_LIMITS,
    };
    HttpServer::start(address, options, Arc::new(move |request| answer(request, &*source)))
}

/// Answers a request.
fn answer(request: &HttpRequest, source: &MetricsSource) -> HttpReply {
    match (request.path.as_str(), request.method.as_str()) {
        ("/metrics", "GET") => source(&request.accept),
        ("/metrics", _) => HttpReply::method_not_allowed("GET"),
        (path, _) => {
            let text = format!("{path}: this address serves /metrics alone");
            HttpReply::error(404, "no_such_path", text)
        }
    }
}
