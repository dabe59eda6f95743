//! A server program in a guest and its client in another guest.
//!
//! Steps, the demo, tests and [`super::kill_under_load`] run an [`Exchange`]: the server runs in a
//! thread of its own, by its guest's agent; the client starts, in the calling thread, when the
//! server listens, which may take 20 s. Both are killed in their guests after the time limit, to
//! which the server's adds 20 s (`CAUSEWAY_PATIENCE` multiplies these times). The error is that of
//! the client, with the server's beside it, or that of the server if the client succeeded; a failed
//! client does not end its server, and the call returns after both. The outputs are returned and
//! not interpreted. Two exchanges of one server guest at a time need different TCP ports; listeners
//! of the connection manager are not distinguished.

use crate::error::{Error, Result};
use crate::limits::{LISTENING, patient};
use crate::rdma::RdmaGuest;
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a server is polled: each poll is a command in the guest.
const POLL: Duration = Duration::from_millis(100);

/// The way in which a server awaits its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// A TCP port, by which programs exchange their queue pairs' numbers.
    Tcp(u16),
    /// The RDMA connection manager.
    ConnectionManager,
}

/// A server and its client, with all arguments.
#[derive(Debug, Clone)]
pub struct Exchange<'a> {
    /// Program and arguments of the server.
    pub server: &'a [&'a str],
    /// Program and arguments of the client.
    pub client: &'a [&'a str],
    /// The server's listener.
    pub listener: Listener,
    /// Time limit of the client; that of the server is 20 s longer.
    pub limit: Duration,
}

impl Exchange<'_> {
    /// Runs the server in `at` and, as soon as it listens, the client in `from`. Returns the output
    /// of the server and that of the client.
    ///
    /// # Errors
    /// When either fails or exceeds its limit: the error of the client, with the server's, which is
    /// often the consequence.
    pub fn run(&self, at: &RdmaGuest, from: &RdmaGuest) -> Result<(String, String)> {
        let (served, asked) = thread::scope(|scope| {
            let server = scope.spawn(|| at.run(self.server, LISTENING + self.limit));
            let asked = self
                .await_listener(at, &|| server.is_finished())
                .and_then(|()| from.run(self.client, self.limit));
            (server.join(), asked)
        });
        let served = served.unwrap_or_else(|_| {
            Err(Error::Traffic { what: "the server's thread panicked".into() })
        });
        match (served, asked) {
            (Ok(served), Ok(asked)) => Ok((served, asked)),
            (Err(served), Err(asked)) => Err(Error::Traffic {
                what: format!("client: {asked}\n--- its server ---\n{served}"),
            }),
            // A server that ended too early explains itself, as by its usage.
            (Ok(served), Err(asked)) => Err(Error::Traffic {
                what: format!("{asked}\n--- its server printed ---\n{served}"),
            }),
            (Err(failure), Ok(_)) => Err(failure),
        }
    }

    /// Waits until the server listens, or has ended.
    fn await_listener(&self, at: &RdmaGuest, has_ended: &dyn Fn() -> bool) -> Result<()> {
        let script = match self.listener {
            Listener::Tcp(port) => {
                format!("cat /proc/net/tcp /proc/net/tcp6 | grep -q ':{port:04X} [0-9A-F:]* 0A '")
            }
            Listener::ConnectionManager => "rdma resource show cm_id | grep -q LISTEN".to_owned(),
        };
        let start = Instant::now();
        loop {
            let ran = at.guest().run(&["sh", "-c", &script], LISTENING)?;
            if ran.code == Some(0) {
                return Ok(());
            }
            if has_ended() || start.elapsed() > patient(LISTENING) {
                let what = format!("`{}` does not listen: {}", self.server.join(" "), ran.stderr);
                return Err(Error::Traffic { what });
            }
            thread::sleep(POLL);
        }
    }
}
