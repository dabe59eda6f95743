//! A peer that breaks the rules of sockets between hosts harms only itself.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::hosts::{Host, PATIENCE, spec, wait_up};
use crate::processes::{add_port, connect, read_line};
use crate::sockets::{join, pattern, port, sockets, transfer};
use causeway_attach::native::{SocketError, Sockets};
use causeway_link::{Clock, Packer, Sink, TunnelConfig, TunnelSet};
use causeway_model::{LinkKind, UdpSpec};
use causeway_socket::limits::HELD_MESSAGES_PER_TURN;
use causeway_socket::multiplex::{PeerEvent, PeerSession, Received};
use causeway_wire::multiplex::{ADDRESSES, Address, Opening, PACKET_LEN, SocketMessage};
use causeway_wire::vsock::{Header, Op, SHUTDOWN_BOTH, Type};

const VNI: u32 = 7;
/// Datagrams that a peer receives in a turn at most.
const DATAGRAMS_PER_TURN: usize = 10_000;

/// A peer that sends what the test tells it to, over a plain tunnel.
pub struct Peer {
    udp: UdpSocket,
    to: SocketAddr,
    tunnels: TunnelSet,
    number: u16,
    packer: Packer,
    pub session: PeerSession,
    sink: Sink,
    began: Instant,
    /// Messages of the daemon, by channel.
    pub heard: Vec<(u32, SocketMessage)>,
    /// Datagrams of the session that are lost on their way to the peer from now on.
    losses: usize,
}

impl Peer {
    /// Links a host to a peer, and agrees on a session.
    pub fn of(host: &Host, own: u8, other: u8, port: u16) -> Self {
        Self::named(host, "peer", own, other, port)
    }

    /// The same over a link of a given name.
    fn named(host: &Host, link: &str, own: u8, other: u8, port: u16) -> Self {
        let at = |n: u8| -> SocketAddr { format!("127.0.0.{n}:{port}").parse().unwrap() };
        let udp =
            UdpSpec { local: at(own), remote: at(other), vni: VNI, class: Default::default() };
        host.link(spec(link, "red", LinkKind::CausewayPlain(udp))).unwrap();
        let socket = UdpSocket::bind(at(other)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut random = |bytes: &mut [u8]| bytes.fill(7);
        let mut clock = Clock { now: 0, wall: 1, random: &mut random };
        let mut tunnels = TunnelSet::new(None, &mut clock);
        let config =
            TunnelConfig { keys: None, remote: Some(at(own)), longest: 1_472, on_demand: None };
        let number = tunnels.add(&config, &clock).unwrap();
        let mut sink = Sink::default();
        tunnels.tunnel_mut(number).unwrap().carry(VNI, &mut sink);
        let packer = Packer::new(tunnels.tunnel(number).unwrap().tx_path().clone());
        let mut peer = Self {
            udp: socket,
            to: at(own),
            tunnels,
            number,
            packer,
            session: PeerSession::new(0, &mut || 9),
            sink,
            began: Instant::now(),
            heard: Vec::new(),
            losses: 0,
        };
        peer.until(|peer| peer.session.is_up());
        wait_up(host, link);
        peer
    }

    /// Exchanges datagrams until `done`.
    pub fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !done(self) {
            assert!(since.elapsed() < PATIENCE, "{:?}", self.session.view());
            self.turn();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Advertises an Ethernet address.
    pub fn advertise(&mut self, mac: [u8; 6], epoch: u64) {
        let now = self.began.elapsed().as_nanos() as u64;
        self.tunnels.tunnel_mut(self.number).unwrap().announce(now, VNI, mac, epoch).unwrap();
    }

    pub fn turn(&mut self) {
        let now = self.began.elapsed().as_nanos() as u64;
        let mut random = |bytes: &mut [u8]| bytes.fill(8);
        let mut clock = Clock { now, wall: now, random: &mut random };
        let mut datagram = vec![0; 70_000];
        // A daemon that never stops sending must not keep the test here.
        for _ in 0..DATAGRAMS_PER_TURN {
            let Ok((len, from)) = self.udp.recv_from(&mut datagram) else { break };
            let _ = self.tunnels.receive(&mut clock, from, &datagram[..len], &mut self.sink);
        }
        self.tunnels.tick(&mut clock, &mut self.sink);
        for (to, datagram) in self.sink.datagrams.drain(..) {
            let _ = self.udp.send_to(&datagram, to);
        }
        let mut received = Received::default();
        for segment in &self.sink.segments {
            if self.losses > 0 {
                self.losses -= 1;
                continue;
            }
            let datagram = self.sink.frame(segment);
            let _ = self.session.receive(now, datagram, &mut || 9, &mut received);
            note_messages(&received, datagram, &mut self.heard);
            received.clear();
        }
        self.session.tick(now, &mut || 9, &mut received);
        self.session.pass_deferred(now, &mut || 9, &mut received);
        note_messages(&received, &[], &mut self.heard);
        self.sink.clear();
        let (udp, to, mut out) = (&self.udp, self.to, Vec::new());
        let longest = self.packer.segment_max();
        while self.session.transmit(now, longest, &mut out) {
            let read = |into: &mut [u8]| {
                into.copy_from_slice(&out);
                Ok::<(), std::convert::Infallible>(())
            };
            let _ = self.packer.push_segment(VNI, out.len(), read, |batch| {
                for one in batch.bytes().chunks(batch.segment()) {
                    let _ = udp.send_to(one, to);
                }
            });
        }
        let _ = self.packer.finish(|batch| {
            for one in batch.bytes().chunks(batch.segment()) {
                let _ = udp.send_to(one, to);
            }
        });
    }

    pub fn send(&mut self, channel: u32, op: Op, data: &[u8]) {
        self.send_flagged(channel, op, 0, data);
    }

    fn send_flagged(&mut self, channel: u32, op: Op, flags: u32, data: &[u8]) {
        let (op, flags) = (op.raw() as u8, flags as u8);
        let message = SocketMessage { op, flags, buf_alloc: 1 << 18, fwd_cnt: 0 };
        self.session.send(channel, 0, [&message.emit(), data]);
    }

    /// Requests a connection, and returns its channel.
    pub fn request(&mut self, from: (u32, u32), to: (u32, u32)) -> u32 {
        let channel = self.session.open(from.1).unwrap();
        self.send(channel, Op::Request, &Opening { from, to, kind: Type::Stream.raw() }.emit());
        channel
    }

    /// Accepts a connection of a process to port 7 of CID 9.
    fn accept(&mut self, host: &Host) -> (UnixStream, u32) {
        self.heard.clear();
        let mut process = connect(host, "CONNECT 9:7\n");
        // Messages of the last connection may still arrive.
        let requested = |peer: &Self| {
            let mut heard = peer.heard.iter();
            heard.find(|(_, message)| u16::from(message.op) == Op::Request.raw()).copied()
        };
        self.until(|peer| requested(peer).is_some());
        let (channel, _) = requested(self).unwrap();
        self.send(channel, Op::Response, &[]);
        self.turn();
        let line = read_line(&mut process);
        assert!(line.starts_with("OK "), "{line}");
        (process, channel)
    }

    /// Reads what a process receives, until the end of its stream or `count` bytes.
    fn read(&mut self, process: &mut UnixStream, count: usize) -> Vec<u8> {
        process.set_nonblocking(true).unwrap();
        let (mut got, mut room) = (Vec::new(), [0; 4096]);
        self.until(|_| {
            loop {
                match process.read(&mut room) {
                    Ok(0) => break true,
                    Ok(len) => got.extend(&room[..len]),
                    Err(_) if got.len() >= count => break true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        got
    }

    /// Loses the next datagram to the daemon.
    fn lose(&mut self) {
        let now = self.began.elapsed().as_nanos() as u64;
        let longest = self.packer.segment_max();
        assert!(self.session.transmit(now, longest, &mut Vec::new()), "a datagram is lost");
    }

    /// Waits for a message on a channel, and returns its operation.
    pub fn answer(&mut self, channel: u32, guest: &mut Sockets) -> Option<Op> {
        let since = Instant::now();
        loop {
            let heard = self.heard.iter().rfind(|(of, _)| *of == channel);
            if let Some((_, message)) = heard {
                return Op::from_raw(message.op.into());
            }
            assert!(since.elapsed() < PATIENCE, "no answer");
            guest.turn().unwrap();
            self.turn();
        }
    }
}

/// Appends the messages of connections to `heard`.
fn note_messages(received: &Received, datagram: &[u8], heard: &mut Vec<(u32, SocketMessage)>) {
    for event in &received.events {
        if let PeerEvent::Message(channel, bytes) = event
            && *channel != ADDRESSES
        {
            let (message, _) = SocketMessage::parse(received.read(bytes, datagram)).unwrap();
            heard.push((*channel, message));
        }
    }
}

#[test]
fn hostile_peer_cannot_use_cids_of_others_or_of_the_host() {
    let host = Host::with_sockets();
    let (mut a, mut b) = (sockets(&host, 3), sockets(&host, 4));
    let mut peer = Peer::of(&host, 45, 46, 21611);
    b.listen(Type::Stream, 1);
    for cid in [0, 1, 2, 3, 4, u32::MAX] {
        let channel = peer.request((cid, 1000), (4, 1));
        assert_eq!(peer.answer(channel, &mut b), Some(Op::Reset), "CID {cid}");
    }
    let channel = peer.request((7, 1000), (4, 1));
    assert_eq!(peer.answer(channel, &mut b), Some(Op::Response));
    assert_eq!(host.link_counter("peer", "vsock_refused_total"), 6);
    assert_eq!(host.link_counter("peer", "vsock_accepts_total"), 1);
    b.accept(PATIENCE).unwrap();
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 2);
    transfer((&mut a, ca), (&mut b, cb), &pattern(1, 100_000), 7000);
}

#[test]
fn hostile_peer_that_exceeds_its_credit_loses_its_connection_alone() {
    let host = Host::with_sockets();
    let (mut a, mut b) = (sockets(&host, 3), sockets(&host, 4));
    let mut peer = Peer::of(&host, 47, 48, 21612);
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 2);
    b.listen(Type::Stream, 1);
    let good = peer.request((8, 1), (4, 1));
    assert_eq!(peer.answer(good, &mut b), Some(Op::Response));
    let bad = peer.request((8, 2), (4, 1));
    assert_eq!(peer.answer(bad, &mut b), Some(Op::Response));
    peer.heard.clear();
    // The guest reads nothing, and its buffer is smaller than this.
    for _ in 0..4096 {
        peer.send(bad, Op::Data, &[9; 4096]);
    }
    assert_eq!(peer.answer(bad, &mut b), Some(Op::Reset));
    assert_eq!(host.link_counter("peer", "vsock_breaches_total"), 1);
    peer.send(good, Op::Data, b"goes on");
    let accepted = b.accept(PATIENCE).unwrap();
    let mut text = [0; 7];
    let since = Instant::now();
    while b.try_receive(accepted, &mut text).unwrap() == 0 {
        peer.turn();
        assert!(since.elapsed() < PATIENCE);
    }
    assert_eq!(&text, b"goes on");
    transfer((&mut a, ca), (&mut b, cb), &pattern(1, 100_000), 7000);
}

#[test]
fn hostile_peer_floods_with_requests_and_addresses_within_its_limits() {
    let host = Host::with_sockets();
    let (mut a, mut b) = (sockets(&host, 3), sockets(&host, 4));
    let mut peer = Peer::of(&host, 49, 50, 21613);
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 2);
    for cid in 0..5000 {
        let address = Address { is_here: true, cid: 1000 + cid, epoch: 5 };
        peer.session.send(ADDRESSES, 0, [&address.emit(), &[]]);
    }
    for round in 0..2000 {
        let channel = peer.request((7, round), (4, 9));
        peer.session.end(channel);
        if round % 50 == 0 {
            peer.turn();
            a.turn().unwrap();
            b.turn().unwrap();
        }
    }
    let since = Instant::now();
    while peer.session.view().queued_bytes > 0 {
        peer.turn();
        b.turn().unwrap();
        assert!(since.elapsed() < PATIENCE);
    }
    // The last resets of the guest are under way.
    let since = Instant::now();
    while host.link_counter("peer", "vsock_connections") > 0 {
        peer.turn();
        b.turn().unwrap();
        assert!(since.elapsed() < PATIENCE);
    }
    let count = |counter: &str| host.link_counter("peer", counter);
    assert_eq!((count("vsock_cids"), count("vsock_refused_cids_total")), (4096, 904));
    transfer((&mut a, ca), (&mut b, cb), &pattern(1, 100_000), 7000);
}

#[test]
fn vsock_last_datagram_that_is_lost_is_sent_again() {
    let host = Host::with_sockets();
    let mut b = sockets(&host, 4);
    let mut peer = Peer::of(&host, 51, 52, 21614);
    b.listen(Type::Stream, 1);
    let channel = peer.request((7, 1), (4, 1));
    assert_eq!(peer.answer(channel, &mut b), Some(Op::Response));
    let accepted = b.accept(PATIENCE).unwrap();
    // All packets of both sides are acknowledged.
    let quiet = Instant::now();
    peer.until(|peer| {
        peer.session.view().queued_bytes == 0 && quiet.elapsed() > Duration::from_millis(300)
    });
    peer.losses = 1;
    b.send(accepted, b"tail", PATIENCE).unwrap();
    let is_data = |(of, message): &(u32, SocketMessage)| {
        *of == channel && u16::from(message.op) == Op::Data.raw()
    };
    peer.until(|peer| peer.heard.iter().any(is_data));
    assert_eq!(peer.losses, 0);
}

#[test]
fn hostile_peer_that_acknowledges_nothing_delays_a_guest_for_two_seconds() {
    let host = Host::with_sockets();
    let (mut a, mut b) = (sockets(&host, 3), sockets(&host, 4));
    let mut peer = Peer::of(&host, 53, 54, 21615);
    let (ca, cb) = join(&mut a, &mut b, Type::Stream, 2);
    b.listen(Type::Stream, 1);
    let accepted: Vec<_> = (0..20)
        .map(|number| {
            let channel = peer.request((7, number), (4, 1));
            assert_eq!(peer.answer(channel, &mut b), Some(Op::Response));
            b.accept(PATIENCE).unwrap()
        })
        .collect();
    // The credit is 5 MiB; the ring stops at 4 MiB, because the peer receives nothing any more.
    let (data, since) = (pattern(3, 256 << 10), Instant::now());
    for id in &accepted {
        let (mut sent, begun) = (0, Instant::now());
        while sent < data.len() && begun.elapsed() < Duration::from_millis(100) {
            sent += b.try_send(*id, &data[sent..]).unwrap_or(0);
        }
    }
    transfer((&mut b, cb), (&mut a, ca), &pattern(1, 100_000), 7000);
    // A peer that is silent for 10 s loses its session.
    assert!(since.elapsed() < Duration::from_secs(9), "after {:?}", since.elapsed());
    let count = |counter: &str| host.link_counter("peer", counter);
    assert_eq!((count("vsock_connections"), count("vsock_sessions_total")), (0, 1));
    assert!(b.try_send(accepted[0], b"more").is_err());
}

/// Credit updates of Linux before 6.7 are rare if its buffer is large.
#[test]
fn vsock_guest_with_a_large_buffer_is_asked_for_its_credit_until_it_reads() {
    const LEN: u32 = 512 << 10;
    let host = Host::with_sockets();
    let mut guest = port(&host, 4);
    let mut peer = Peer::of(&host, 55, 56, 21616);
    let channel = peer.request((7, 1), (4, 1));
    let (mut sent, mut got, mut asked) = (0, 0, 0);
    let (mut data, since) = (Vec::new(), Instant::now());
    while !peer.heard.iter().any(|(_, message)| message.fwd_cnt == LEN) {
        assert!(since.elapsed() < PATIENCE, "{got} bytes received, {asked} requests");
        peer.turn();
        while let Some(header) = guest.receive(&mut data).unwrap() {
            let op = match header.operation() {
                Some(Op::Request) => Op::Response,
                Some(Op::CreditRequest) => Op::CreditUpdate,
                Some(Op::Data) => {
                    got += header.len;
                    continue;
                }
                other => panic!("{other:?}"),
            };
            asked += u32::from(got == LEN && op == Op::CreditUpdate);
            // The application reads late, and the guest sends no update for it.
            let reply = Header {
                src_cid: header.dst_cid,
                dst_cid: header.src_cid,
                src_port: header.dst_port,
                dst_port: header.src_port,
                len: 0,
                kind: header.kind,
                op: op.raw(),
                flags: 0,
                buf_alloc: 1 << 20,
                fwd_cnt: if asked > 4 { LEN } else { 0 },
            };
            assert!(guest.queue(&reply, &[]).unwrap());
            guest.flush().unwrap();
        }
        let is_open = peer.heard.iter().any(|(of, _)| *of == channel);
        while is_open && sent < LEN {
            peer.send(channel, Op::Data, &[9; 4096]);
            sent += 4096;
        }
    }
}

#[test]
fn hostile_segment_that_is_shorter_than_a_packet_is_refused() {
    let remote: SocketAddr = "127.0.0.1:21617".parse().unwrap();
    let mut random = |bytes: &mut [u8]| bytes.fill(7);
    let mut clock = Clock { now: 0, wall: 1, random: &mut random };
    let mut tunnels = TunnelSet::new(None, &mut clock);
    let config = TunnelConfig { keys: None, remote: Some(remote), longest: 1_472, on_demand: None };
    let number = tunnels.add(&config, &clock).unwrap();
    let mut sink = Sink::default();
    tunnels.tunnel_mut(number).unwrap().carry(VNI, &mut sink);
    let mut packer = Packer::new(tunnels.tunnel(number).unwrap().tx_path().clone());
    for (len, segments) in [(1, 0), (PACKET_LEN - 1, 0), (PACKET_LEN, 1)] {
        let mut datagrams = Vec::new();
        let read = |into: &mut [u8]| {
            into.fill(1);
            Ok::<(), std::convert::Infallible>(())
        };
        let _ = packer.push_segment(VNI, len, read, |batch| datagrams.push(batch.bytes().to_vec()));
        let _ = packer.finish(|batch| datagrams.push(batch.bytes().to_vec()));
        sink.clear();
        let [datagram] = &datagrams[..] else { panic!("{} datagrams", datagrams.len()) };
        let received = tunnels.receive(&mut clock, remote, datagram, &mut sink);
        assert_eq!((received.is_ok(), sink.segments.len()), (segments == 1, segments), "{len}");
    }
}

#[test]
fn vsock_request_that_a_peer_repeats_keeps_the_connection() {
    let host = Host::with_sockets();
    let mut b = sockets(&host, 4);
    let mut peer = Peer::of(&host, 57, 58, 21618);
    b.listen(Type::Stream, 1);
    let channel = peer.request((7, 1), (4, 1));
    assert_eq!(peer.answer(channel, &mut b), Some(Op::Response));
    let accepted = b.accept(PATIENCE).unwrap();
    let opening = Opening { from: (7, 1), to: (4, 1), kind: Type::Stream.raw() };
    peer.send(channel, Op::Request, &opening.emit());
    peer.send(channel, Op::Data, b"goes on");
    let (mut text, since) = ([0; 7], Instant::now());
    while b.try_receive(accepted, &mut text).unwrap() == 0 {
        peer.turn();
        assert!(since.elapsed() < PATIENCE);
    }
    assert_eq!(&text, b"goes on");
    assert_eq!(host.link_counter("peer", "vsock_breaches_total"), 0);
}

#[test]
fn hostile_peer_that_claims_a_cid_of_the_future_gives_way_to_a_later_claim() {
    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let host = Host::with_sockets();
    let mut guest = sockets(&host, 3);
    let mut hostile = Peer::named(&host, "hostile", 59, 60, 21619);
    let mut honest = Peer::named(&host, "honest", 61, 62, 21620);
    let hour = 3_600_000_000_000;
    for (peer, link, ahead) in [(&mut hostile, "hostile", hour), (&mut honest, "honest", 0)] {
        let address = Address { is_here: true, cid: 9, epoch: wall() + ahead };
        peer.session.send(ADDRESSES, 0, [&address.emit(), &[]]);
        peer.until(|_| host.link_counter(link, "vsock_cids") == 1);
    }
    let refused = std::thread::scope(|scope| {
        let connect = scope.spawn(|| guest.connect(Type::Stream, 9, 1, PATIENCE));
        while !connect.is_finished() {
            hostile.turn();
            honest.turn();
            assert!(hostile.heard.is_empty(), "the claim of the future is followed");
            for (channel, message) in std::mem::take(&mut honest.heard) {
                if u16::from(message.op) == Op::Request.raw() {
                    honest.send(channel, Op::Reset, &[]);
                }
            }
        }
        connect.join().unwrap()
    });
    assert!(matches!(refused, Err(SocketError::Reset)), "{refused:?}");
}

/// Returns a host with a port for processes, and a peer with CID 9.
fn host_with_processes(own: u8, other: u8, port: u16) -> (Host, Peer) {
    let host = Host::with_sockets();
    add_port(&host);
    let mut peer = Peer::of(&host, own, other, port);
    peer.session.send(ADDRESSES, 0, [&Address { is_here: true, cid: 9, epoch: 5 }.emit(), &[]]);
    peer.until(|_| host.link_counter("peer", "vsock_cids") == 1);
    (host, peer)
}

/// A datagram may have data of a connection and its end. The daemon sends processes the data of
/// several datagrams together.
#[test]
fn vsock_process_receives_the_data_before_any_end_of_its_connection() {
    let (host, mut peer) = host_with_processes(63, 64, 21632);
    let text = pattern(5, 20_000);
    for end in ["shutdown", "reset", "channel", "breach"] {
        let (mut process, channel) = peer.accept(&host);
        text.chunks(3000).for_each(|part| peer.send(channel, Op::Data, part));
        match end {
            "shutdown" => peer.send_flagged(channel, Op::Shutdown, SHUTDOWN_BOTH, &[]),
            "reset" => peer.send(channel, Op::Reset, &[]),
            "channel" => peer.session.end(channel),
            // The connection is open.
            _ => peer.send(channel, Op::Response, &[]),
        }
        let got = peer.read(&mut process, usize::MAX);
        assert_eq!(got.len(), text.len(), "{end}");
        assert!(got == text, "{end}");
    }
}

/// Messages behind a gap pass on in portions, the later ones in ticks of the shard.
#[test]
fn vsock_process_receives_small_messages_behind_a_lost_datagram() {
    let (host, mut peer) = host_with_processes(65, 66, 21633);
    let text = pattern(5, 5 * HELD_MESSAGES_PER_TURN);
    let (mut process, channel) = peer.accept(&host);
    for (at, byte) in text.iter().enumerate() {
        peer.send(channel, Op::Data, &[*byte]);
        if at == 0 {
            peer.lose();
        }
    }
    let got = peer.read(&mut process, text.len());
    assert_eq!(got.len(), text.len());
    assert!(got == text);
}
