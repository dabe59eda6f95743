//! The host kernel's path: two network namespaces, connected by two veth pairs and a bridge in a
//! third. The figures of TCP and UDP include the kernel's protocol stack.
//!
//! Rows of Ethernet frames compare with it. Sender and receiver are threads of the benchmark, each
//! in its namespace and on its core; they use TCP or UDP sockets, while Causeway's row moves frames
//! without a protocol stack. UDP datagrams that are lost do not count. Needs root; otherwise the
//! peer is left out with the reason.
//!
//! Receivers have 200 ms to listen, and a stream fails if its sender does not connect or send for
//! 20 s ([`super::tcp`]). The namespaces are removed at the end of each measurement.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::netns::{Namespaces, ip};
use super::tcp;
use super::wait::QUIET;
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER, pin};

const FAR: &str = "10.199.0.2:7000";

/// Creates two namespaces on a bridge in a third; removed when dropped.
fn bridge() -> Result<Namespaces, String> {
    let spaces = Namespaces::new(&["a", "b", "s"])?;
    let switch = spaces.name(2)?;
    ip(&format!("-n {switch} link add br0 type bridge"))?;
    ip(&format!("-n {switch} link set br0 up"))?;
    for (i, name) in spaces.names().iter().take(2).enumerate() {
        ip(&format!("-n {switch} link add p{i} type veth peer name eth0 netns {name}"))?;
        ip(&format!("-n {switch} link set p{i} master br0 up"))?;
        ip(&format!("-n {name} addr add 10.199.0.{}/24 dev eth0", i + 1))?;
        ip(&format!("-n {name} link set eth0 up"))?;
    }
    Ok(spaces)
}

/// Runs both sides in their namespaces, each on its core.
fn both<T: Send>(
    spaces: &Namespaces,
    receive: impl FnOnce() -> std::io::Result<T> + Send,
    send: impl FnOnce() -> std::io::Result<()> + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            pin(SERVER);
            spaces.enter(1)?;
            receive().map_err(|e| e.to_string())
        });
        let sender = scope.spawn(|| {
            pin(CLIENT);
            spaces.enter(0)?;
            // The receiver listens after this delay.
            std::thread::sleep(Duration::from_millis(200));
            send().map_err(|e| e.to_string())
        });
        let sent = sender.join().map_err(|_| "the sender's thread panicked".to_owned())?;
        let received = receiver.join().map_err(|_| "the receiver's thread panicked".to_owned())?;
        sent.and(received)
    })
}

/// TCP with writes of 64 KiB, in GB/s.
pub fn tcp_gbps(effort: &Effort) -> Result<Vec<f64>, String> {
    let spaces = bridge()?;
    let total = effort.rounds(4 << 30);
    effort.each(|| {
        both(&spaces, || tcp::receive(FAR).map(|rate| rate / 1e9), || tcp::send(FAR, total))
    })
}

/// UDP datagrams of 1400 B that arrive, in millions per second.
pub fn udp_mpps(effort: &Effort) -> Result<Vec<f64>, String> {
    let spaces = bridge()?;
    let time = effort.time(Duration::from_secs(1));
    effort.each(|| {
        let (done, got) = (AtomicBool::new(false), AtomicU64::new(0));
        let receive = || {
            let socket = UdpSocket::bind(FAR)?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            let (mut room, since) = ([0; 2048], Instant::now());
            // A sender that fails before its first datagram reports no end.
            while since.elapsed() < time + QUIET && !done.load(Ordering::Relaxed) {
                if socket.recv(&mut room).is_ok() {
                    got.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        let mut rate = 0.0;
        let send = || {
            let result = flood(time, &got, &mut rate);
            done.store(true, Ordering::Relaxed);
            result
        };
        both(&spaces, receive, send)?;
        Ok(rate)
    })
}

fn flood(time: Duration, got: &AtomicU64, rate: &mut f64) -> std::io::Result<()> {
    let socket = UdpSocket::bind("10.199.0.1:0")?;
    socket.connect(FAR)?;
    let data = [7; 1400];
    let before = got.load(Ordering::Relaxed);
    let since = Instant::now();
    while since.elapsed() < time {
        for _ in 0..64 {
            socket.send(&data)?;
        }
    }
    let came = got.load(Ordering::Relaxed) - before;
    *rate = came as f64 / since.elapsed().as_secs_f64() / 1e6;
    Ok(())
}
