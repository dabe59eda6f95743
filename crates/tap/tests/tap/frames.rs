//! Frames between the host, other interfaces and guests: content, offloads, and hostile frames.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use causeway_host::net::socket::PacketSocket;
use causeway_host::net::tap::{TAP_HEADER_BYTES, TapInterface, TapOptions};
use causeway_model::port::{TapOffloads, TapSpec};
use causeway_testing::wait::wait;
use causeway_wire::virtio_net::{GSO_TCPV4, HDR_F_NEEDS_CSUM, Header};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::rig::{
    ALL, Rig, checksum_is_right, host_receive, host_send, in_namespace, ip, mac, pattern,
    payload_of, plain, receive, send, tap, tcp, udp,
};

/// Bytes of a TCP stream.
const STREAM: usize = 16 << 20;

/// A network namespace, which a process holds.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let mut process = Command::new("unshare");
        process.args(["--net", "sh", "-c", "echo ready; exec sleep 600"]).stdout(Stdio::piped());
        let mut holder = process.spawn().unwrap();
        let mut ready = [0; 6];
        holder.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Self(holder)
    }

    /// Moves the calling thread into the namespace.
    fn enter(&self) {
        let file = std::fs::File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tap_carries_a_tcp_stream_between_the_host_and_a_container_uncut() {
    in_namespace("frames::tap_carries_a_tcp_stream_between_the_host_and_a_container_uncut", || {
        let (rig, container) = (Rig::new(), Namespace::new());
        rig.tap(tap("ct0", 1));
        rig.tap(tap("ct1", 2));
        ip("addr add 10.9.0.1/24 dev ct0");
        ip(&format!("link set ct1 netns {}", container.0.id()));
        std::thread::scope(|scope| {
            let (ready, is_ready) = std::sync::mpsc::channel();
            let container = &container;
            let server = scope.spawn(move || {
                container.enter();
                ip("addr add 10.9.0.2/24 dev ct1");
                ip("link set ct1 up");
                let listener = TcpListener::bind("10.9.0.2:5000").unwrap();
                ready.send(()).unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                let mut got = vec![0; STREAM];
                stream.read_exact(&mut got).unwrap();
                stream.write_all(b"done").unwrap();
                got
            });
            is_ready.recv().unwrap();
            let mut stream = TcpStream::connect("10.9.0.2:5000").unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.write_all(&pattern(STREAM)).unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            assert!(server.join().unwrap() == pattern(STREAM), "the content is the same");
        });
        let counters = rig.view("ct1").counters;
        let (bytes, frames) = (counters["receive_bytes_total"], counters["receive_packets_total"]);
        assert!(bytes > STREAM as u64 && bytes / frames > 5_000, "uncut: {counters:?}");
        let warnings = rig.view("ct1").warnings;
        assert!(warnings[0].contains("another network namespace"), "{warnings:?}");
    });
}

#[test]
fn tap_segments_and_checksums_of_guests_pass_uncut_in_both_directions() {
    in_namespace(
        "frames::tap_segments_and_checksums_of_guests_pass_uncut_in_both_directions",
        || {
            let rig = Rig::new();
            rig.tap(tap("ct0", 1));
            let mut guest = rig.guest("vm", 2, ALL);
            let host = PacketSocket::open("ct0").unwrap();
            for (header, frame) in [
                tcp(2, 1, false, &pattern(50_000), 1448),
                tcp(2, 1, false, &pattern(900), 0),
                udp(2, 1, &pattern(30_000), 1400),
            ] {
                send(&mut guest, &header, &frame);
                let (got, bytes) = host_receive(&host);
                assert_eq!((got.gso_type, got.gso_size), (header.gso_type, header.gso_size));
                assert_eq!(got.flags & HDR_F_NEEDS_CSUM, HDR_F_NEEDS_CSUM);
                assert!(bytes == frame, "the bytes are the guest's");
            }
            let (header, frame) = tcp(1, 2, false, &pattern(50_000), 1448);
            host_send(&host, &header, &frame);
            let (got, bytes) = receive(&mut guest);
            assert_eq!((got.gso_type, got.gso_size), (GSO_TCPV4, 1448));
            assert!(bytes == frame);
            let (header, frame) = tcp(1, 2, false, &pattern(700), 0);
            host_send(&host, &header, &frame);
            let (got, bytes) = receive(&mut guest);
            assert!(got.flags & HDR_F_NEEDS_CSUM != 0 && bytes == frame);
        },
    );
}

#[test]
fn tap_without_offloads_gets_finished_frames() {
    in_namespace("frames::tap_without_offloads_gets_finished_frames", || {
        let rig = Rig::new();
        rig.tap(TapSpec { offloads: TapOffloads::None, ..tap("ct0", 1) });
        let mut guest = rig.guest("vm", 2, ALL);
        let host = PacketSocket::open("ct0").unwrap();
        let (header, frame) = tcp(2, 1, false, &pattern(10_000), 1448);
        send(&mut guest, &header, &frame);
        let mut all = Vec::new();
        while all.len() < 10_000 {
            let (got, bytes) = host_receive(&host);
            assert_eq!((got.flags & HDR_F_NEEDS_CSUM, got.gso_type), (0, 0));
            assert!(bytes.len() <= 1514 && checksum_is_right(&bytes));
            all.extend_from_slice(payload_of(&bytes));
        }
        assert!(all == pattern(10_000));
        // A guest without offloads gets finished frames of the host, too.
        let mut simple = rig.guest("simple", 3, 0);
        let (header, frame) = tcp(1, 3, false, &pattern(700), 0);
        host_send(&host, &header, &frame);
        let (got, bytes) = receive(&mut simple);
        assert!(got.flags == 0 && checksum_is_right(&bytes) && payload_of(&bytes) == pattern(700));
    });
}

#[test]
fn tap_drops_frames_that_break_the_rules_of_the_port() {
    in_namespace("frames::tap_drops_frames_that_break_the_rules_of_the_port", || {
        let rig = Rig::new();
        rig.tap(tap("ct0", 1));
        let mut guest = rig.guest("vm", 2, ALL);
        let host = PacketSocket::open("ct0").unwrap();
        let none = Header::default();
        host_send(&host, &none, &plain(mac(9), mac(2), &[1; 100]));
        rig.wait_counter("ct0", "drop_spoofed_source_total", 1);
        host_send(&host, &none, &plain(mac(1), mac(7), &[1; 100]));
        rig.wait_counter("ct0", "drop_unknown_destination_total", 1);
        // The host raised the MTU of its side.
        ip("link set ct0 mtu 9000");
        let long = PacketSocket::open("ct0").unwrap();
        host_send(&long, &none, &plain(mac(1), mac(2), &[1; 4000]));
        rig.wait_counter("ct0", "drop_too_big_total", 1);
        let warnings = rig.view("ct0").warnings;
        assert!(warnings[0].contains("ip link set ct0 mtu 1500"), "{warnings:?}");
        // Hostile frames of a guest: none reaches the interface, and the next good frame does.
        let (header, segment) = tcp(2, 1, false, &pattern(5000), 1448);
        for (bad, frame) in [
            (none, plain(mac(2), mac(1), &[1; 4000])),
            (Header { csum_start: 60_000, ..header }, segment.clone()),
            (Header { gso_size: 0, ..header }, segment.clone()),
            (Header { gso_size: 3000, ..header }, segment),
            (none, vec![1; 5]),
            (none, plain(mac(1), mac(1), &[1; 60])),
        ] {
            send(&mut guest, &bad, &frame);
        }
        let good = plain(mac(2), mac(1), &[7; 60]);
        // Invalid frames penalise their sender for a while.
        send(&mut guest, &none, &good);
        assert!(host_receive(&long).1 == good, "{:?}", rig.counters("vm"));
        let shortest = plain(mac(2), mac(1), &[]);
        send(&mut guest, &none, &shortest);
        assert!(host_receive(&long).1.starts_with(&shortest));
        host_send(&long, &none, &plain(mac(1), mac(2), &[8; 60]));
        assert_eq!(receive(&mut guest).1, plain(mac(1), mac(2), &[8; 60]));
    });
}

#[test]
fn tap_with_learn_stands_for_the_addresses_of_a_bridge() {
    in_namespace("frames::tap_with_learn_stands_for_the_addresses_of_a_bridge", || {
        let rig = Rig::new();
        rig.tap(TapSpec { learn: true, ..tap("ct0", 1) });
        let mut guest = rig.guest("vm", 2, 0);
        let host = PacketSocket::open("ct0").unwrap();
        let none = Header::default();
        // The address is unknown: the frame goes to the port that learns.
        let question = plain(mac(2), mac(44), &[1; 60]);
        send(&mut guest, &none, &question);
        assert_eq!(host_receive(&host).1, question);
        let answer = plain(mac(44), mac(2), &[2; 60]);
        host_send(&host, &none, &answer);
        assert_eq!(receive(&mut guest).1, answer);
        // The guest's address stays the guest's.
        host_send(&host, &none, &plain(mac(2), mac(2), &[3; 60]));
        rig.wait_counter("ct0", "drop_spoofed_source_total", 1);
        // Broadcasts go in both directions.
        let all = plain(mac(2), [0xff; 6], &[4; 60]);
        send(&mut guest, &none, &all);
        assert_eq!(host_receive(&host).1, all);
        let all = plain(mac(45), [0xff; 6], &[5; 60]);
        host_send(&host, &none, &all);
        assert_eq!(receive(&mut guest).1, all);
    });
}

#[test]
fn tap_reaches_a_vmm_with_an_interface_of_its_own_by_a_bridge() {
    let test = "frames::tap_reaches_a_vmm_with_an_interface_of_its_own_by_a_bridge";
    in_namespace(test, || {
        let rig = Rig::new();
        rig.tap(TapSpec { learn: true, ..tap("ct0", 1) });
        let mut guest = rig.guest("vm", 2, ALL);
        // The test is the VMM, as Firecracker.
        ip("tuntap add fc0 mode tap vnet_hdr");
        ip("link set fc0 up");
        let options =
            TapOptions { address: None, ip: None, mtu: 1500, offloads: true, persistent: false };
        let vmm = TapInterface::open("fc0", &options).unwrap();
        // With snooping, the bridge would send reports of IGMP.
        ip("link add br0 type bridge mcast_snooping 0");
        ip("link set br0 up");
        ip("link set fc0 master br0");
        ip("link set ct0 master br0");
        let (header, frame) = tcp(44, 2, false, &pattern(40_000), 1448);
        vmm.write(&header.to_host(), [&frame, &[]]).unwrap();
        let (got, bytes) = receive(&mut guest);
        assert_eq!((got.gso_type, got.gso_size), (GSO_TCPV4, 1448));
        assert!(bytes == frame);
        let (header, frame) = tcp(2, 44, false, &pattern(40_000), 1448);
        send(&mut guest, &header, &frame);
        let (got, bytes) = read_frame(&vmm);
        assert_eq!((got.gso_type, got.gso_size), (GSO_TCPV4, 1448));
        assert!(bytes == frame);
    });
}

/// Returns the next frame that a program reads from its interface, with its header.
fn read_frame(interface: &TapInterface) -> (Header, Vec<u8>) {
    let mut room = vec![0; 70_000];
    let mut len = None;
    wait(
        || {
            len = interface.read(&mut room).ok();
            len.is_some()
        },
        || "no frame".to_owned(),
    );
    let header = Header::from_host(room.first_chunk().unwrap());
    (header, room[TAP_HEADER_BYTES..len.unwrap()].to_vec())
}
