//! Notifications to the service manager by sd_notify(3): ready, alive, stopping.
//!
//! Each notification is a datagram to the socket in `NOTIFY_SOCKET` (a path, or an abstract name
//! after `@`). Without that variable, or with an address of another form, notifications are dropped
//! silently. A datagram that cannot be sent is logged and not repeated. The module passes no
//! descriptors and reads no replies. A send may block while the manager's receive buffer is full.
//!
//! [`crate::lifecycle`] sends READY, WATCHDOG (a thread of its own, every [`watchdog_period`]: half
//! of the interval that the manager requires; none while a dispatcher does not answer) and
//! STOPPING; the holder's program sends READY. [`ServiceManager::send`] may be called from any
//! thread.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The connection to the service manager, if a service manager started this process.
#[derive(Debug)]
pub struct ServiceManager {
    /// An unbound socket, and the service manager's address.
    to: Option<(UnixDatagram, SocketAddr)>,
}

impl ServiceManager {
    /// Connects to the service manager named by `NOTIFY_SOCKET`.
    pub fn of_process() -> Self {
        let address = std::env::var("NOTIFY_SOCKET").ok();
        Self { to: address.and_then(|address| open(&address)) }
    }

    /// Sends a state such as `READY=1`; does nothing without a service manager.
    pub fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.to
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            log::warn!(
                error:% = error, state;
                "cannot notify the service manager: it keeps the previous state"
            );
        }
    }
}

/// Returns a socket and the address to send to, or `None` for an address of an unknown form.
fn open(address: &str) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None if address.starts_with('/') => SocketAddr::from_pathname(address).ok()?,
        None => return None,
    };
    Some((UnixDatagram::unbound().ok()?, address))
}

/// Returns the interval of `WATCHDOG=1`: half of the interval that systemd requires, or `None` if
/// systemd does not watch this process.
pub fn watchdog_period() -> Option<Duration> {
    let var = |key| std::env::var(key).ok();
    period(var("WATCHDOG_USEC").as_deref(), var("WATCHDOG_PID").as_deref(), std::process::id())
}

/// Returns half of `usec` microseconds, if `pid` is absent or `own`.
fn period(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let usec: u64 = usec?.parse().ok().filter(|n| *n > 1)?;
    Some(Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notify_states_arrive_by_abstract_name() {
        let name = format!("causeway-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notify = ServiceManager { to: open(&format!("@{name}")) };
        notify.send("READY=1");
        let mut got = [0; 64];
        let n = manager.recv(&mut got).unwrap();
        assert_eq!(&got[..n], b"READY=1");
        assert!(open("relative").is_none());
        ServiceManager { to: None }.send("READY=1");
    }

    #[test]
    fn watchdog_interval_is_half_of_the_required_one_and_only_for_its_process() {
        assert_eq!(period(Some("10000000"), None, 7), Some(Duration::from_secs(5)));
        assert_eq!(period(Some("10000000"), Some("7"), 7), Some(Duration::from_secs(5)));
        assert_eq!(period(Some("10000000"), Some("8"), 7), None);
        assert_eq!(period(None, None, 7), None);
        assert_eq!(period(Some("0"), None, 7), None);
    }
}
