//! Slow, busy or paused receivers that are healthy: no receiver loses a connection.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::common::*;
use causeway_attach::native::{SocketError, Sockets, VsockOptions, VsockPort};
use causeway_wire::vsock::{Header, Op, SEQ_EOM, Type};

/// Accounting of Linux for a packet besides its bytes.
const SKB_OVERHEAD: u32 = 576;

/// A hand-driven guest 4 that sends credit as Linux does for SEQPACKET.
struct Reader {
    port: VsockPort,
    /// Received bytes by its own port number.
    came: HashMap<u32, u32>,
}

impl Reader {
    /// Receives at most `count` packets and consumes them.
    fn take(&mut self, count: usize) -> usize {
        let mut data = Vec::new();
        let mut taken = 0;
        while taken < count
            && let Some(header) = self.port.receive(&mut data).unwrap()
        {
            taken += 1;
            let came = self.came.entry(header.dst_port).or_default();
            *came = came.wrapping_add(header.len);
            if header.operation() == Some(Op::Reset) {
                continue;
            }
            let (own, peer) = ((4, header.dst_port), (3, header.src_port));
            let update = Header { fwd_cnt: *came, ..packet(own, peer, Op::CreditUpdate, 0) };
            // The next update replaces an update without room.
            self.port.queue(&update, &[]).unwrap();
        }
        self.port.flush().unwrap();
        taken
    }
}

/// Sends to guest 4 on 60 connections as much as credit allows, until the ring of `a` stops.
fn stop_the_ring(rig: &Rig, a: &mut VsockPort, b: &mut VsockPort) {
    for i in 0..60 {
        open(a, b, 100 + i, 200 + i);
    }
    let data = pattern(1, 60_000);
    for i in 0..240 {
        let n = i / 4;
        a.queue(&packet((3, 100 + n), (4, 200 + n), Op::Data, 60_000), &data).unwrap();
        a.flush().unwrap();
    }
    wait(|| rig.counter("red", 3, "transmit_waited_total") > 0, || "the ring goes on".into());
}

#[test]
fn vsock_small_packets_taken_steadily_are_progress() {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    // 64 B of data in each receive buffer.
    let options = VsockOptions { ring_size: 16, receive_bytes: 108, ..VsockOptions::default() };
    let mut b = rig.port_with("red", 4, options);
    stop_the_ring(&rig, &mut a, &mut b);
    let mut reader = Reader { port: b, came: HashMap::new() };
    let since = Instant::now();
    let mut taken = 0;
    while since.elapsed() < Duration::from_secs(3) {
        taken += reader.take(20);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(taken * 64 < 3 << 20, "fewer bytes than would be progress by themselves");
    assert_eq!(rig.counter("red", 4, "reset_stalled_total"), 0, "after {taken} packets");
    assert_eq!(rig.view("red", 4).faults_total, 0);
}

#[test]
fn vsock_receiver_that_does_not_run_for_a_while_loses_nothing() {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    let options = VsockOptions { ring_size: 16, ..VsockOptions::default() };
    let mut b = rig.port_with("red", 4, options);
    stop_the_ring(&rig, &mut a, &mut b);
    // No index of its queues moves, as when its VM is stopped.
    std::thread::sleep(Duration::from_secs(3));
    let mut reader = Reader { port: b, came: HashMap::new() };
    let since = Instant::now();
    while reader.came.values().map(|n| *n as usize).sum::<usize>() < 240 * 60_000 {
        reader.take(16);
        assert!(since.elapsed() < PATIENCE);
    }
    assert_eq!(rig.counter("red", 4, "reset_stalled_total"), 0);
    let view = rig.view("red", 4);
    assert_eq!((view.faults_total, view.fault, view.notice), (0, None, None));
}

/// Sends as much as credit allows in writes of 100 B; returns the number of bytes.
fn pour(from: &mut Sockets, id: causeway_attach::native::ConnectionId) -> usize {
    let mut sent = 0;
    let data = pattern(id.local, 1 << 20);
    let since = Instant::now();
    // Without progress for a while, credit is used up.
    let mut moved = Instant::now();
    while moved.elapsed() < Duration::from_millis(200) && since.elapsed() < PATIENCE {
        let end = (sent + 100).min(data.len());
        let now = from.try_send(id, &data[sent..end]).unwrap();
        sent += now;
        if now > 0 {
            moved = Instant::now();
        }
    }
    sent
}

#[test]
fn vsock_paused_receiver_costs_nobody_anything() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let mut c = rig.sockets("red", 5);
    let pairs: Vec<_> = (0..4).map(|i| join(&mut a, &mut b, Type::Stream, 10 + i)).collect();
    let (to_c, of_a) = join(&mut a, &mut c, Type::Stream, 9);
    // B does nothing from here on.
    let sent: Vec<_> = pairs.iter().map(|(id, _)| pour(&mut a, *id)).collect();
    assert!(sent.iter().all(|bytes| *bytes > 100_000), "{sent:?}");
    let since = Instant::now();
    let mut longest = Duration::ZERO;
    while since.elapsed() < Duration::from_secs(3) {
        let begun = Instant::now();
        a.send(to_c, b"ping", PATIENCE).unwrap();
        let mut room = [0; 4];
        c.receive(of_a, &mut room, PATIENCE).unwrap();
        longest = longest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(longest < Duration::from_millis(900), "another connection waited for {longest:?}");
    for ((from, to), bytes) in pairs.into_iter().zip(sent) {
        let mut got = vec![0; bytes];
        b.receive(to, &mut got, PATIENCE).unwrap();
        assert!(got == pattern(from.local, bytes), "content");
    }
    assert_eq!(rig.counter("red", 4, "reset_stalled_total"), 0);
    assert_eq!(rig.view("red", 4).faults_total, 0);
}

/// Opens a connection of `kind` between guests 3 and 4, both driven by hand.
fn open_of(kind: Type, a: &mut VsockPort, b: &mut VsockPort) -> (Header, Header) {
    let of = |src, dst| Header { kind: kind.raw(), ..packet(src, dst, Op::Request, 0) };
    let (to_b, to_a) = (of((3, 1), (4, 2)), of((4, 2), (3, 1)));
    send(a, &to_b, &[]);
    assert_eq!(next_op(b), Op::Request);
    send(b, &Header { op: Op::Response.raw(), ..to_a }, &[]);
    assert_eq!(next_op(a), Op::Response);
    (to_b, to_a)
}

/// A hand-driven guest 4 that reads nothing before several credit requests.
struct Sleeper {
    port: VsockPort,
    /// The header of its packets.
    header: Header,
    data: Vec<u8>,
    packets: u32,
    asked: u32,
}

impl Sleeper {
    fn awake(&self) -> bool {
        self.asked > 3
    }

    /// Receives the waiting packets.
    fn turn(&mut self, flags: u32) {
        let mut room = Vec::new();
        while let Some(came) = self.port.receive(&mut room).unwrap() {
            match came.operation().unwrap() {
                Op::Data => {
                    self.packets += 1;
                    assert_eq!(came.flags, flags, "the end of a message");
                    let unread = if self.awake() { 0 } else { self.packets };
                    assert!(unread * SKB_OVERHEAD <= 256 << 10, "{unread} packets are unread");
                    self.data.extend_from_slice(&room);
                }
                Op::CreditRequest => {
                    self.asked += 1;
                    let fwd_cnt = if self.awake() { self.data.len() as u32 } else { 0 };
                    let op = Op::CreditUpdate.raw();
                    send(&mut self.port, &Header { op, fwd_cnt, ..self.header }, &[]);
                }
                other => panic!("{other:?}"),
            }
        }
        self.port.flush().unwrap();
    }
}

/// Sends `count` packets of 200 B that are not read for a while, and then are.
fn unread(kind: Type, count: usize) {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    let mut b = rig.port("red", 4);
    let (to_b, header) = open_of(kind, &mut a, &mut b);
    let mut b = Sleeper { port: b, header, data: Vec::new(), packets: 0, asked: 0 };
    let flags = if kind == Type::Seqpacket { SEQ_EOM } else { 0 };
    let header = Header { op: Op::Data.raw(), len: 200, flags, ..to_b };
    let data = pattern(1, 200 * count);
    for part in data.chunks(200) {
        let before = b.data.len();
        wait(|| a.queue(&header, part).unwrap(), || "the sender's ring stands still".into());
        a.flush().unwrap();
        // Each in its own batch, so that streams do not share receive buffers.
        let since = Instant::now();
        while b.data.len() == before && b.packets < 455 && since.elapsed() < PATIENCE {
            b.turn(flags);
        }
        b.turn(flags);
    }
    let since = Instant::now();
    while b.data.len() < data.len() {
        let (got, packets) = (b.data.len(), b.packets);
        assert!(since.elapsed() < PATIENCE, "{got} bytes in {packets} packets");
        b.turn(flags);
        b.port.wait(false, Some(Duration::from_millis(10))).unwrap();
    }
    assert!(b.data == data, "content");
    assert!(b.awake(), "all was unread at once");
    assert_eq!(rig.counter("red", 4, "reset_stalled_total"), 0);
    // All descriptors return to the sender.
    wait(|| a.is_idle().unwrap(), || "descriptors are missing".into());
}

#[test]
fn vsock_unread_messages_stay_within_what_the_receiver_accounts_for() {
    unread(Type::Seqpacket, 600);
}

#[test]
fn vsock_unread_stream_packets_stay_within_what_the_receiver_accounts_for() {
    unread(Type::Stream, 1000);
}

#[test]
fn vsock_messages_of_one_byte_pass_as_long_as_they_are_read() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let (ca, cb) = join(&mut a, &mut b, Type::Seqpacket, 7);
    let count = 50_000_u32;
    let (mut sent, mut got) = (0, 0);
    let since = Instant::now();
    while got < count {
        while sent < count && a.try_send(ca, &[sent as u8]).unwrap() == 1 {
            sent += 1;
        }
        a.turn().unwrap();
        loop {
            match b.receive_message(cb, Duration::from_millis(1)) {
                Ok(message) => {
                    assert_eq!(message, [got as u8]);
                    got += 1;
                }
                Err(SocketError::TimedOut) => break,
                Err(other) => panic!("after {got} messages: {other}"),
            }
        }
        assert!(since.elapsed() < 2 * PATIENCE, "{got} messages");
    }
    assert_eq!(rig.counter("red", 4, "reset_stalled_total"), 0);
}
