//! Attackers from outside: clients of the control interfaces, and peers of links.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use causeway_wire::tunnel::record::{self, Fragment, Header};
use causeway_wire::tunnel::{DatagramKind, Inner, Outer};
use causeway_wire::vxlan;

use crate::common::{Dir, send};
use crate::{Daemon, PATIENCE};

const VNET: &str = "127.0.0.1:24090";
const VNI: u32 = 42;
/// The links of the victims' group: kind, own address, and address of the peer.
const LINKS: [(&str, &str, &str); 3] = [
    ("causeway", "127.0.0.1:24091", "127.0.0.1:24092"),
    ("causeway-plain", "127.0.0.1:24093", "127.0.0.1:24094"),
    ("vxlan", "127.0.0.1:24095", "127.0.0.1:24096"),
];
/// Routes of one request in the VNET language.
const ROUTES: u32 = 4_000;
/// Number of datagrams to each link.
const DATAGRAMS: u32 = 3000;

/// Returns the part of the configuration with the interfaces that outsiders attack.
pub fn refusals(dir: &Dir) -> String {
    let secret = |name: &str, text: &str| {
        let file = dir.file(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        file.display().to_string()
    };
    let password = secret("password", "s3cret");
    let key = secret("key", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=");
    let mut text = format!(
        "[control]\nvnet_listen = {VNET:?}\nvnet_password_file = {password:?}\n\
         vnet_group = \"blue\"\n"
    );
    for (kind, local, remote) in LINKS {
        text += &format!(
            "[[link]]\nname = \"to-{kind}\"\ngroup = \"blue\"\nkind = {kind:?}\n\
             local = {local:?}\nremote = {remote:?}\n"
        );
        match kind {
            "causeway" => {
                let peer = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
                text += &format!("private_key = {key:?}\nkey = {peer:?}\n");
            }
            "vxlan" => text += &format!("vni = {VNI}\n"),
            _ => {}
        }
    }
    text
}

/// Sends `bytes` and reads until the daemon closes the connection.
fn say(mut stream: impl HalfClose, bytes: &[u8]) -> String {
    // The daemon may close the connection before all bytes are sent.
    let _ = stream.write_all(bytes);
    stream.end();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

/// A stream whose write direction can be shut down.
trait HalfClose: Read + Write {
    fn end(&self);
}

impl HalfClose for UnixStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Write);
        let _ = self.set_read_timeout(Some(PATIENCE));
    }
}

impl HalfClose for TcpStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Write);
        let _ = self.set_read_timeout(Some(PATIENCE));
    }
}

/// Attacks the control socket: noise, incomplete and long requests, and wrong files.
pub fn control_socket(daemon: &Daemon) {
    let path = daemon.socket("control");
    let connect = || UnixStream::connect(&path).unwrap();
    let idle: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    for n in 0..100_usize {
        let noise: Vec<u8> = (0..n * 20).map(|at| (at * 31 + n) as u8).collect();
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(n * 1000));
        for bytes in [
            &noise[..],
            b"POST /v1/ports HTTP/1.1\r\nContent-Length: 999\r\n\r\n{",
            long.as_bytes(),
        ] {
            say(connect(), bytes);
        }
    }
    drop(idle);
    for n in 0..20 {
        let file = format!("[[port]]\nname = \"bad-{n}\"\n").repeat(2000);
        let (status, told) = send(&path, "POST", "/v1/apply", &file);
        assert!((400..500).contains(&status), "{status}: {told}");
    }
}

/// Attacks the VNET control port: noise, incomplete lines, wrong passwords, and
/// thousands of routes.
pub fn vnet_control(daemon: &Daemon) {
    let at: SocketAddr = VNET.parse().unwrap();
    let connect = || TcpStream::connect(at).unwrap();
    for n in 0..50_usize {
        let noise: Vec<u8> = (0..n * 50).map(|at| (at * 31 + n) as u8).collect();
        for bytes in [&noise[..], b"HELLO", b"ADDROUTE any any EDGE\n", &[b'x'; 5000]] {
            assert!(!say(connect(), bytes).contains("OK"), "{bytes:?}");
        }
    }
    for n in 0..5 {
        let told = say(connect(), format!("HELLO guess{n} 0.9\n").as_bytes());
        assert!(told.starts_with("ERROR"), "{told}");
    }
    let path = daemon.socket("control");
    let routes = |word: &str| {
        let line = |n: u32| {
            format!("{word} none 02:aa:{:02x}:{:02x}:00:01 EDGE to-vxlan\n", n >> 8, n & 255)
        };
        let text: String = (0..ROUTES).map(line).collect();
        let body =
            serde_json::json!({"group": "blue", "text": text, "file": "f", "dry_run": false});
        send(&path, "POST", "/v1/vnet", &body.to_string())
    };
    let (added, told) = routes("ADDROUTE");
    assert!(added == 200 || added == 422, "{told}");
    let (deleted, told) = routes("DELETEROUTE");
    assert_eq!(deleted, added, "{told}");
}

/// Attacks from the peers' addresses: noise, endless handshakes, fragments that never complete,
/// frames with a victim's address, and replays.
pub fn link_peers(_: &Daemon) {
    for (kind, local, remote) in LINKS {
        let (to, socket): (SocketAddr, _) =
            (local.parse().unwrap(), UdpSocket::bind(remote).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for n in 0..DATAGRAMS {
            for bytes in [datagram(kind, n), datagram(kind, n / 2)] {
                for socket in [&socket, &stranger] {
                    // Datagrams beyond the socket buffer are lost.
                    let _ = socket.send_to(&bytes, to);
                }
            }
            if n.is_multiple_of(256) {
                let _ = socket.recv(&mut [0; 2048]);
            }
        }
    }
}

/// Returns the `n`th datagram to a link of this kind.
fn datagram(kind: &str, n: u32) -> Vec<u8> {
    let noise = |len: u32| (0..len).map(move |at| (at.wrapping_mul(31) ^ n) as u8);
    // A broadcast from the first victim's address.
    let head = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 0, 0, 0, 0x88, 0xb6];
    let frame: Vec<u8> = head.into_iter().chain(noise(n % 1400)).collect();
    if n.is_multiple_of(5) {
        return noise(n % 3000).collect();
    }
    if kind == "vxlan" {
        let vni = if n.is_multiple_of(3) { VNI + n } else { VNI };
        let mut bytes = vxlan::emit(vni).to_vec();
        bytes.extend(&frame[..frame.len().min(n as usize % 1500)]);
        return bytes;
    }
    let (counter, receiver) = (u64::from(n), n % 7);
    let outer = |kind| Outer { kind, receiver, counter }.emit().to_vec();
    match n % 5 {
        1 => [outer(DatagramKind::Init), noise(n % 200).collect()].concat(),
        2 => [outer(DatagramKind::Response), noise(48).collect()].concat(),
        3 if kind == "causeway" => [outer(DatagramKind::Data), noise(n % 1400).collect()].concat(),
        3 => plain(record::FRAME, &frame),
        _ => {
            let place = Fragment { id: n, offset: n % 3 * 1000, total: 60_000 };
            plain(record::FRAGMENT, &[&place.emit()[..], &frame].concat())
        }
    }
}

/// Returns an unencrypted record.
fn plain(kind: u8, body: &[u8]) -> Vec<u8> {
    let outer = Outer { kind: DatagramKind::Plain, receiver: 0, counter: 0 }.emit();
    let header = Header { kind, bare: true, hops: 0, len: body.len() as u16 }.emit();
    [&outer[..], &Inner { vni: 1, flags: 0 }.emit(), &header, body].concat()
}
