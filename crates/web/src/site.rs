//! The paths of the server: the page, its parts, and its state.
//!
//! Everything is embedded in the program; the page fetches nothing from elsewhere, and the headers
//! forbid it. A request whose Host is unknown is refused (421), as is any method but GET (405), and
//! any other path (404).
//!
//! `HttpServer` calls [`Site::answer`] in the thread of a connection. A request for the state may
//! wait for 1 s, and is answered with 503 without a state, and with 304 if the browser names the
//! tag of the last one. The site keeps nothing about browsers.

use std::sync::Arc;

use causeway_http::{HttpReply, HttpRequest};

use crate::hosts::HostNames;
use crate::poller::Poller;

/// The files of the page: path, type, text.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../page/page.css")),
    ("/graph.css", "text/css; charset=utf-8", include_str!("../page/graph.css")),
    ("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/main.js", JAVASCRIPT, include_str!("../page/main.js")),
    ("/dom.js", JAVASCRIPT, include_str!("../page/dom.js")),
    ("/format.js", JAVASCRIPT, include_str!("../page/format.js")),
    ("/model.js", JAVASCRIPT, include_str!("../page/model.js")),
    ("/layout.js", JAVASCRIPT, include_str!("../page/layout.js")),
    ("/graph.js", JAVASCRIPT, include_str!("../page/graph.js")),
    ("/tables.js", JAVASCRIPT, include_str!("../page/tables.js")),
    ("/detail.js", JAVASCRIPT, include_str!("../page/detail.js")),
    ("/summary.js", JAVASCRIPT, include_str!("../page/summary.js")),
];

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Headers of every reply: nothing but the page's own files is loaded or run, no other page reads
/// or frames this one, and no copy is kept.
const HEADERS: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];

/// The site of a server.
#[derive(Debug)]
pub struct Site {
    names: HostNames,
    files: Vec<(&'static str, &'static str, Arc<str>)>,
}

impl Site {
    /// Returns the site, for browsers that address it by these names.
    pub fn new(names: HostNames) -> Self {
        let shared = |&(path, kind, text): &(&'static str, &'static str, &str)| {
            (path, kind, Arc::from(text))
        };
        Self { names, files: FILES.iter().map(shared).collect() }
    }

    /// Answers a request; may wait for the poller for 1 s.
    pub fn answer(&self, request: &HttpRequest, poller: &Poller) -> HttpReply {
        let mut reply = self.reply(request, poller);
        reply.headers.extend(HEADERS.iter().map(|(name, value)| (*name, (*value).into())));
        reply
    }

    fn reply(&self, request: &HttpRequest, poller: &Poller) -> HttpReply {
        if !self.names.admits(request.host.as_deref()) {
            let text = "the request's Host is not a name of this server, as in an attack by DNS \
                        rebinding; use the IP address or localhost, or start causeway web with \
                        --host-name NAME";
            return HttpReply::error(421, "unknown_host", text);
        }
        if request.method != "GET" {
            return HttpReply::method_not_allowed("GET");
        }
        if request.path == "/api/state" {
            return state(request, poller);
        }
        match self.files.iter().find(|(path, ..)| *path == request.path) {
            Some((_, kind, text)) => HttpReply::text(text.clone(), kind),
            None => HttpReply::error(
                404,
                "no_such_path",
                "this server has /, its files, and /api/state",
            ),
        }
    }
}

/// Answers with the state, or that the browser has it already.
fn state(request: &HttpRequest, poller: &Poller) -> HttpReply {
    let Some(state) = poller.state() else {
        return HttpReply::error(503, "busy", "causewayd has not answered yet; try again");
    };
    let tags = request.if_none_match.as_deref().unwrap_or_default();
    if tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == state.tag) {
        return HttpReply::not_modified(state.tag);
    }
    let mut reply = HttpReply::text(state.text, "application/json");
    reply.headers.push(("ETag", state.tag.into()));
    reply
}
