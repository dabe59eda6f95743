//! Every exchange with the service, over sockets of this machine.

use causeway_guest_tool::transport::Target;
use causeway_guest_tool::{client, serve};
use socket2::Socket;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("causeway-exchange-{}-{name}", std::process::id()))
}

/// A service on a fresh Unix socket; the socket file is removed when the test ends.
struct Service(PathBuf);

impl Service {
    fn new(name: &str) -> Self {
        let path = path(name);
        serve::spawn(Target::Unix(path.clone())).unwrap();
        Self(path)
    }

    fn target(&self) -> Target {
        Target::Unix(self.0.clone())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn exchange_ping_pong_of_every_size() {
    let service = Service::new("ping-pong");
    for bytes in [1, 64, 4096, 65536, 1 << 20] {
        let report = client::ping_pong(&service.target(), bytes, 20, LIMIT).unwrap();
        assert_eq!((report.bytes, report.rounds > 0), (bytes, true));
        assert!(report.min_ns <= report.median_ns && report.median_ns <= report.max_ns);
    }
}

#[test]
fn exchange_ping_pong_ends_its_warm_up_at_the_time_limit() {
    let path = path("late");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; serve::HEADER_BYTES]).unwrap();
        let (mut round, mut rounds) = ([0; 64], 0);
        while socket.read_exact(&mut round).is_ok() {
            socket.write_all(&round).unwrap();
            rounds += 1;
        }
        rounds
    });
    let target = Target::Unix(path.clone());
    let report = client::ping_pong(&target, 64, 1000, Duration::ZERO);
    let _ = std::fs::remove_file(path);
    // One round of the warm-up, and one that is measured.
    assert_eq!((report.unwrap().rounds, echo.join().unwrap()), (1, 2));
}

#[test]
fn exchange_streams_of_every_size() {
    let service = Service::new("stream");
    for bytes in [64, 4096, 65536, 1 << 20] {
        let report = client::stream(&service.target(), bytes, 4 << 20, LIMIT).unwrap();
        assert_eq!(report.total_bytes, 4 << 20);
        assert!(report.bytes_per_second() > 0.0);
    }
}

#[test]
fn exchange_half_close_keeps_receiving() {
    let service = Service::new("half-close");
    assert_eq!(client::half_close(&service.target(), 3_000_000).unwrap().bytes, 3_000_000);
}

#[test]
fn exchange_works_over_tcp() {
    // A port that was free at the time of the call.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = Target::Tcp(free);
    serve::spawn(target.clone()).unwrap();
    assert_eq!(client::stream(&target, 65536, 1 << 20, LIMIT).unwrap().total_bytes, 1 << 20);
}

/// A peer that answers `CONNECT` with `answer` and then serves one stream.
fn gateway(name: &str, answer: &'static str) -> Target {
    let path = path(name);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let gone = path.clone();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut asked = [0; 13];
        socket.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"CONNECT 7001\n");
        socket.write_all(answer.as_bytes()).unwrap();
        let _ = serve::serve_stream(&Socket::from(socket));
        let _ = std::fs::remove_file(gone);
    });
    Target::Hybrid(path, 7001)
}

#[test]
fn exchange_works_over_a_hybrid_target() {
    let target = gateway("hybrid", "OK 1025\n");
    assert_eq!(client::stream(&target, 4096, 1 << 20, LIMIT).unwrap().total_bytes, 1 << 20);
}

#[test]
fn exchange_reports_the_answer_of_a_refusing_hybrid_target() {
    let why = client::half_close(&gateway("refused", "NO such port\n"), 1).unwrap_err().to_string();
    assert!(why.contains("CONNECT 7001 was answered with 'NO such port'"), "{why}");
}

#[test]
fn exchange_ping_pong_fails_on_a_changed_byte() {
    let path = path("liar");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut header = [0; serve::HEADER_BYTES];
        socket.read_exact(&mut header).unwrap();
        let mut round = [0; 64];
        socket.read_exact(&mut round).unwrap();
        round[63] ^= 0x80;
        socket.write_all(&round).unwrap();
    });
    let why = client::ping_pong(&Target::Unix(path.clone()), 64, 5, LIMIT).unwrap_err();
    let _ = std::fs::remove_file(path);
    assert!(why.to_string().contains("byte 63 is"), "{why}");
}
