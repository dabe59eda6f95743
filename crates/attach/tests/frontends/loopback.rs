//! Frontend against backend: a native port, and a backend that echoes its frames.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::sockets;
use causeway_attach::native::{
    Client, NET_HEADER_BYTES, NativeError, NetOptions, NetPort, SocketError, Sockets, VsockOptions,
    VsockPort, net_features,
};
use causeway_attach::{Device, Event, Model, Server};
use causeway_memory::Cursor;
use causeway_memory::copy::copy;
use causeway_ring::Chain;
use causeway_wire::vsock::{HEADER_LEN, Header, Type};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const LONG: Duration = Duration::from_secs(20);

/// Returns options for rings of `format`.
fn net(format: u64) -> NetOptions {
    let options = NetOptions::default();
    NetOptions { features: options.features | format, ..options }
}

/// Returns options for rings of `format`.
fn vsock(format: u64) -> VsockOptions {
    VsockOptions { features: format, ..VsockOptions::default() }
}

/// Makes each function a test of both ring formats.
macro_rules! in_both_formats {
    ($($name:ident),* $(,)?) => {
        mod split {
            $(#[test]
            fn $name() {
                super::$name(0);
            })*
        }
        mod packed {
            $(#[test]
            fn $name() {
                super::$name(super::net_features::RING_PACKED);
            })*
        }
    };
}

in_both_formats![
    native_frames_of_all_sizes_are_echoed,
    native_frames_in_descriptors_and_several_pairs_are_echoed,
    native_frames_left_in_buffers_are_echoed_and_discarded,
    native_frames_left_in_buffers_are_echoed_in_batches,
    native_send_finds_room_with_a_queued_frame,
    long_runs_wrap_the_rings,
    native_oversized_frame_is_refused,
    native_port_detects_a_lost_backend_and_attaches_again,
    native_vsock_stream_carries_every_byte,
    native_vsock_stream_works_in_descriptors_and_small_rings,
    messages_keep_their_boundaries,
    native_vsock_connect_without_a_listener_is_refused,
];

/// A backend on a thread of its own: it sleeps when idle, and ends when its frontends are gone.
struct Backend {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    /// Serves `servers`; `work` moves chains and returns whether it moved any.
    fn start(
        mut servers: Vec<Server>,
        mut work: impl FnMut(&mut [Server]) -> bool + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut events = Vec::new();
            while !flag.load(Ordering::Relaxed) && !servers.iter().all(Server::is_over) {
                servers.iter_mut().for_each(|s| s.receive(&mut events).expect("no fault"));
                events.retain(|event| *event == Event::Reset);
                if !work(&mut servers) {
                    park(&mut servers);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// Sleeps until a doorbell or a message, or for a moment.
fn park(servers: &mut [Server]) {
    // Only the odd queues, on which the frontends send; the others wait for the backend.
    let queues = servers.iter_mut().flat_map(|s| s.device_mut().queues.iter_mut().skip(1));
    let rings = queues.step_by(2).filter_map(|q| q.ring.as_mut());
    if rings.fold(false, |more, ring| more | ring.arm().unwrap()) {
        return;
    }
    let bells: Vec<_> =
        servers.iter().flat_map(|s| &s.device().queues).filter_map(|q| q.doorbell()).collect();
    let mut fds: Vec<_> =
        bells.iter().map(|bell| PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)).collect();
    fds.extend(servers.iter().filter(|s| !s.is_over()).map(|s| PollFd::new(s, PollFlags::IN)));
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })).unwrap();
    bells.iter().for_each(|bell| bell.drain());
}

/// Echoes every frame of each queue pair, in as many buffers as it needs; only after DRIVER_OK, as
/// DPDK's backends do.
fn echo_frames(servers: &mut [Server]) -> bool {
    const DRIVER_OK: u8 = 4;
    let device = servers[0].device_mut();
    if device.status() & DRIVER_OK == 0 {
        return false;
    }
    let mut worked = false;
    for pair in 0..device.queues.len() / 2 {
        while echo_frame(device, pair) {
            worked = true;
        }
    }
    worked
}

fn echo_frame(device: &mut Device, pair: usize) -> bool {
    let map = Arc::clone(&device.map);
    let [receive, send] = &mut device.queues[pair * 2..pair * 2 + 2] else { unreachable!() };
    let (Some(rx), Some(tx)) = (&mut receive.ring, &mut send.ring) else { return false };
    let mut frame = Chain::new();
    if !tx.pop(&map, &mut frame).unwrap() {
        return false;
    }
    let mut from = frame.reader();
    let mut buffers = Vec::new();
    while from.remaining() > 0 {
        let mut buffer = Chain::new();
        if !rx.pop(&map, &mut buffer).unwrap() {
            buffers.iter().rev().for_each(|(b, _): &(Chain, u32)| rx.put_back(b.head()));
            tx.put_back(frame.head());
            return false;
        }
        let now = from.remaining().min(buffer.writable_bytes());
        let mut to = buffer.writer();
        copy((&map, &mut from), (&map, &mut to), now).unwrap();
        buffers.push((buffer, now as u32));
    }
    let count = buffers.len() as u16;
    let first = &buffers[0].0;
    Cursor::at(first.writable(), 10).write(&map, &count.to_le_bytes()).unwrap();
    for (buffer, written) in &buffers {
        rx.push(buffer.head(), *written).unwrap();
    }
    tx.push(frame.head(), 0).unwrap();
    if rx.publish().unwrap() {
        receive.notify().unwrap();
    }
    if tx.publish().unwrap() {
        send.notify().unwrap();
    }
    true
}

/// Runs one conversation: the server on a thread, the frontend in `attach`.
fn over<T>(
    model: Model,
    work: impl FnMut(&mut [Server]) -> bool + Send + 'static,
    attach: impl FnOnce(Client) -> T,
) -> (T, Backend) {
    let (ours, theirs) = sockets();
    let backend = Backend::start(vec![Server::new(model, theirs)], work);
    (attach(Client::over(ours).unwrap()), backend)
}

fn net_model(pairs: usize) -> Model {
    let features = net_features::MRG_RXBUF | net_features::MAC;
    let config = vec![2, 0, 0, 0, 0, 7, 0, 0, pairs as u8, 0, 0, 0];
    Model::new(pairs * 2, features, config).in_pairs()
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ seed) as u8).collect()
}

fn echo_with(options: NetOptions, lengths: &[usize]) {
    let pairs = options.pairs;
    let attach = |client| NetPort::over(client, options).unwrap();
    let (mut port, _backend) = over(net_model(usize::from(pairs)), echo_frames, attach);
    assert_eq!(port.mac(), Some([2, 0, 0, 0, 0, 7]));
    let mut frame = Vec::new();
    for (seed, &len) in lengths.iter().enumerate() {
        for pair in 0..pairs {
            let sent = pattern(len, seed);
            let mut header = [0; NET_HEADER_BYTES];
            header[6] = 7;
            assert!(port.queue(pair, &header, &sent).unwrap());
            port.flush(pair).unwrap();
            let got = loop {
                if let Some(header) = port.receive(pair, &mut frame).unwrap() {
                    break header;
                }
                assert!(port.wait(Some(LONG)).unwrap(), "no echo of {len} bytes");
            };
            assert_eq!(got[6], 7, "the header is included");
            assert_eq!(frame, sent, "{len} bytes");
        }
    }
}

fn native_frames_of_all_sizes_are_echoed(format: u64) {
    echo_with(net(format), &[0, 1, 60, 1514, 4083, 4084, 4085, 9014, 65_535, 65_553]);
}

fn native_frames_in_descriptors_and_several_pairs_are_echoed(format: u64) {
    let options = NetOptions { pairs: 3, descriptor_bytes: Some(500), ..net(format) };
    echo_with(options, &[60, 1514, 9014, 65_553]);
}

fn native_frames_left_in_buffers_are_echoed_and_discarded(format: u64) {
    for receive_bytes in [1600, 200] {
        let features = net(format).features | net_features::MRG_RXBUF;
        let options = NetOptions { ring_size: 64, receive_bytes, features, ..net(format) };
        let attach = |client| NetPort::over(client, options).unwrap();
        let (mut port, _backend) = over(net_model(1), echo_frames, attach);
        let mut frame = Vec::new();
        // One frame in flight at a time uses always the same buffer.
        assert!(port.send(&[0x5a; 700]).unwrap());
        for round in 0..300 {
            assert!(port.wait(Some(LONG)).unwrap());
            if round % 2 == 0 {
                assert!(port.receive(0, &mut frame).unwrap().is_some());
                assert_eq!(frame, [0x5a; 700]);
            } else {
                assert_eq!(port.discard(0).unwrap(), Some(700));
            }
            while !port.is_idle(0).unwrap() {
                std::thread::yield_now();
            }
            assert_eq!(port.discard(0).unwrap(), None);
            assert!(port.queue_as_is(0, 712).unwrap());
            port.flush(0).unwrap();
        }
    }
}

fn native_frames_left_in_buffers_are_echoed_in_batches(format: u64) {
    for (merged, descriptor_bytes) in [(false, None), (true, None), (false, Some(400))] {
        let (features, receive_bytes) =
            if merged { (net_features::MRG_RXBUF, 200) } else { (0, 1600) };
        let features = features | format;
        let options =
            NetOptions { ring_size: 16, receive_bytes, features, descriptor_bytes, ..net(format) };
        let attach = |client| NetPort::over(client, options).unwrap();
        let (mut port, _backend) = over(net_model(1), echo_frames, attach);
        let (mut sent, mut got) = (0, 0);
        let drain = |port: &mut NetPort, got: &mut usize, sent: usize| {
            while *got < sent {
                *got += port.discard_all(0).unwrap();
                assert!(*got >= sent || port.wait(Some(LONG)).unwrap(), "{got} of {sent}");
            }
        };
        // Different content in each buffer, of one length.
        for nth in 0..16 {
            sent += usize::from(port.queue(0, &[0; NET_HEADER_BYTES], &[nth; 700]).unwrap());
        }
        port.flush(0).unwrap();
        drain(&mut port, &mut got, sent);
        for round in 0..400 {
            let most = [1, 3, 16, 100][round % 4];
            let count = port.queue_each_as_is(0, 712, most).unwrap();
            assert!(count <= most.min(16), "{count} of {most}");
            sent += usize::from(count);
            port.flush(0).unwrap();
            drain(&mut port, &mut got, sent);
        }
        assert!(sent > 400, "{sent}");
        // One frame is read: it is complete and unchanged.
        assert_eq!(port.queue_each_as_is(0, 712, 1).unwrap(), 1);
        port.flush(0).unwrap();
        assert!(port.wait(Some(LONG)).unwrap());
        let mut frame = Vec::new();
        assert!(port.receive(0, &mut frame).unwrap().is_some());
        assert!(frame.len() == 700 && frame.iter().all(|byte| *byte == frame[0]), "{frame:?}");
        assert_eq!(port.discard_all(0).unwrap(), 0);
    }
}

fn native_send_finds_room_with_a_queued_frame(format: u64) {
    let options = NetOptions { ring_size: 4, ..net(format) };
    let attach = |client| NetPort::over(client, options).unwrap();
    let (mut port, _backend) = over(net_model(1), echo_frames, attach);
    assert_eq!(port.queue_each_as_is(0, 112, 3).unwrap(), 3);
    port.flush(0).unwrap();
    // The ring may be full now, and the backend does not see the queued frame.
    assert!(port.queue_as_is(0, 112).unwrap());
    let (mut got, since) = (0, Instant::now());
    while got < 3 {
        got += port.discard_all(0).unwrap();
        assert!(since.elapsed() < LONG, "{got} of 3");
    }
    let mut more = 0;
    while more < 3 {
        more += port.queue_each_as_is(0, 112, 4).unwrap();
        assert!(since.elapsed() < LONG, "room for {more} of 3");
    }
    assert_eq!(port.queue_each_as_is(0, 112, 4).unwrap(), 0, "four frames are queued");
}

fn long_runs_wrap_the_rings(format: u64) {
    let options = NetOptions { ring_size: 8, receive_bytes: 1600, ..net(format) };
    let attach = |client| NetPort::over(client, options).unwrap();
    let (mut port, _backend) = over(net_model(1), echo_frames, attach);
    let (mut sent, mut got) = (0_u32, 0_u32);
    let mut frame = Vec::new();
    while got < 20_000 {
        let mut idle = true;
        while sent < 20_000 && port.queue(0, &[0; 12], &sent.to_le_bytes().repeat(16)).unwrap() {
            sent += 1;
            idle = false;
        }
        port.flush(0).unwrap();
        while port.receive(0, &mut frame).unwrap().is_some() {
            assert_eq!(frame, got.to_le_bytes().repeat(16), "in order, none lost");
            got += 1;
            idle = false;
        }
        if idle {
            assert!(port.wait(Some(LONG)).unwrap(), "stuck at {sent} sent, {got} received");
        }
    }
    while !port.is_idle(0).unwrap() {
        assert!(port.wait_room(0, Some(LONG)).unwrap());
    }
}

fn native_oversized_frame_is_refused(format: u64) {
    let attach = |client| NetPort::over(client, net(format)).unwrap();
    let (mut port, _backend) = over(net_model(1), |_| false, attach);
    let wrong = port.send(&vec![0; 65_554]).unwrap_err();
    assert!(matches!(wrong, NativeError::Long { len: 65_566, room: 65_565 }));
    let sent = (0..1000).filter(|_| port.send(&[0; 60]).unwrap()).count();
    assert_eq!(sent, 256, "a backend that uses no chains stops the sender");
    assert!(!port.wait_room(0, Some(Duration::from_millis(1))).unwrap());
}

#[test]
fn native_too_many_pairs_are_refused_in_time() {
    let options = NetOptions { pairs: 3, ..NetOptions::default() };
    let attach = |client| NetPort::over(client, options).unwrap_err();
    let (wrong, _backend) = over(net_model(2), |_| false, attach);
    assert!(matches!(wrong, NativeError::Lacking(_)));
}

fn native_port_detects_a_lost_backend_and_attaches_again(format: u64) {
    let attach = |client| NetPort::over(client, net(format)).unwrap();
    let (mut port, backend) = over(net_model(1), echo_frames, attach);
    assert!(!port.frontend().is_gone());
    drop(backend);
    assert!(matches!(port.wait(Some(LONG)), Err(NativeError::Gone)));
    assert!(port.frontend().is_gone());
    let (mut port, _backend) = over(net_model(1), echo_frames, attach);
    assert!(port.send(&[5; 60]).unwrap());
    assert!(port.wait(Some(LONG)).unwrap());
}

#[test]
fn native_connect_waits_for_a_backend() {
    let path = std::env::temp_dir().join(format!("causeway-attach-{}", std::process::id()));
    let at_once = NetPort::attach(&path, NetOptions::default()).unwrap_err();
    assert!(matches!(at_once, NativeError::Connect { .. }), "{at_once}");
    assert!(Client::connect_within(&path, Duration::from_millis(30)).is_err());
    let there = path.clone();
    let listening = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let listener = std::os::unix::net::UnixListener::bind(there).unwrap();
        OwnedFd::from(listener.accept().unwrap().0)
    });
    let client = std::thread::spawn({
        let path = path.clone();
        move || NetPort::over(Client::connect_within(&path, LONG).unwrap(), NetOptions::default())
    });
    let server = Server::new(net_model(1), listening.join().unwrap());
    let _backend = Backend::start(vec![server], echo_frames);
    std::fs::remove_file(&path).unwrap();
    client.join().unwrap().unwrap();
}

/// Relays packets between two vsock ports, cut to the receiver's buffers.
fn relay(servers: &mut [Server]) -> bool {
    let [a, b] = servers else { unreachable!() };
    carry(a.device_mut(), b.device_mut()) | carry(b.device_mut(), a.device_mut())
}

fn carry(from: &mut Device, to: &mut Device) -> bool {
    let (source, target) = (Arc::clone(&from.map), Arc::clone(&to.map));
    let (send, receive) = (&mut from.queues[1], &mut to.queues[0]);
    let (Some(tx), Some(rx)) = (&mut send.ring, &mut receive.ring) else { return false };
    let (mut packet, mut buffer) = (Chain::new(), Chain::new());
    let mut worked = false;
    'packets: while tx.pop(&source, &mut packet).unwrap() {
        let mut bytes = [0; HEADER_LEN];
        let mut data = packet.reader();
        data.read(&source, &mut bytes).unwrap();
        let mut header = Header::parse(&bytes).unwrap();
        let flags = header.flags;
        assert_eq!(u64::from(header.len), data.remaining(), "the chain holds the data");
        // Whole packets or nothing: this relay keeps no state.
        let room = 1000;
        let pieces = header.len.div_ceil(room).max(1);
        let mut heads = Vec::new();
        for piece in 0..pieces {
            if !rx.pop(&target, &mut buffer).unwrap() {
                heads.iter().rev().for_each(|&(head, _)| rx.put_back(head));
                tx.put_back(packet.head());
                break 'packets;
            }
            header.len = (data.remaining() as u32).min(room);
            let data_packet = header.op == 5;
            header.flags = if data_packet && piece + 1 < pieces { 0 } else { flags };
            let mut to = buffer.writer();
            to.write(&target, &header.emit()).unwrap();
            copy((&source, &mut data), (&target, &mut to), u64::from(header.len)).unwrap();
            heads.push((buffer.head(), HEADER_LEN as u32 + header.len));
        }
        for (head, written) in heads {
            rx.push(head, written).unwrap();
        }
        tx.push(packet.head(), 0).unwrap();
        worked = true;
    }
    if rx.publish().unwrap() {
        receive.notify().unwrap();
    }
    if tx.publish().unwrap() {
        send.notify().unwrap();
    }
    worked
}

fn vsock_model(cid: u64) -> Model {
    Model::new(3, 1 << 1, cid.to_le_bytes().to_vec())
}

/// Returns two vsock ports, CIDs 10 and 11, that reach each other.
fn vsock_pair(options: &VsockOptions) -> (Sockets, Sockets, Backend) {
    let ends: Vec<(OwnedFd, OwnedFd)> = vec![sockets(), sockets()];
    let (ours, theirs): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let servers = (10..).zip(theirs).map(|(cid, fd)| Server::new(vsock_model(cid), fd)).collect();
    let backend = Backend::start(servers, relay);
    let mut ports = ours.into_iter().map(|fd| {
        let client = Client::over(fd).unwrap();
        Sockets::new(VsockPort::over(client, options.clone()).unwrap())
    });
    let (a, b) = (ports.next().unwrap(), ports.next().unwrap());
    assert_eq!((a.cid(), b.cid()), (10, 11));
    (a, b, backend)
}

fn carry_bytes(options: &VsockOptions) {
    let (mut a, mut b, _backend) = vsock_pair(options);
    let sent = pattern(3_000_000, 1);
    let expected = sent.clone();
    let server = std::thread::spawn(move || {
        b.listen(Type::Stream, 1234);
        let id = b.accept(LONG).unwrap();
        let mut got = vec![0; expected.len()];
        b.receive(id, &mut got, LONG).unwrap();
        assert!(got == expected, "every byte, in order");
        let mut more = [0];
        while !matches!(b.try_receive(id, &mut more), Err(SocketError::Closed)) {
            assert!(b.wait(LONG).unwrap(), "the conversation did not end");
        }
        b.send(id, b"all of it", LONG).unwrap();
        b.close(id).unwrap();
        b.turn().unwrap();
        b
    });
    // The listener may not exist yet: a refused connection is retried.
    let id = loop {
        match a.connect(Type::Stream, 11, 1234, LONG) {
            Ok(id) => break id,
            Err(SocketError::Reset) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    };
    a.send(id, &sent, LONG).unwrap();
    a.shutdown_send(id).unwrap();
    assert!(matches!(a.send(id, b"more", LONG), Err(SocketError::Closed)));
    let mut answer = [0; 9];
    a.receive(id, &mut answer, LONG).unwrap();
    assert_eq!(&answer, b"all of it");
    server.join().unwrap();
}

fn native_vsock_stream_carries_every_byte(format: u64) {
    carry_bytes(&vsock(format));
}

fn native_vsock_stream_works_in_descriptors_and_small_rings(format: u64) {
    carry_bytes(&VsockOptions {
        ring_size: 128,
        receive_bytes: 1044,
        descriptor_bytes: Some(44),
        ..vsock(format)
    });
}

fn messages_keep_their_boundaries(format: u64) {
    let (mut a, mut b, _backend) = vsock_pair(&vsock(format));
    b.listen(Type::Seqpacket, 7);
    let server = std::thread::spawn(move || {
        let id = b.accept(LONG).unwrap();
        for len in [1, 999, 1000, 1001, 70_000, 3] {
            assert!(b.receive_message(id, LONG).unwrap() == pattern(len, len), "{len} bytes");
        }
    });
    let id = a.connect(Type::Seqpacket, 11, 7, LONG).unwrap();
    for len in [1, 999, 1000, 1001, 70_000, 3] {
        a.send(id, &pattern(len, len), LONG).unwrap();
    }
    while !server.is_finished() {
        a.wait(Duration::from_millis(10)).unwrap();
        a.turn().unwrap();
    }
    server.join().unwrap();
}

fn native_vsock_connect_without_a_listener_is_refused(format: u64) {
    let (mut a, mut b, _backend) = vsock_pair(&vsock(format));
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let server = std::thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            b.turn().unwrap();
            b.wait(Duration::from_millis(10)).unwrap();
        }
    });
    assert!(matches!(a.connect(Type::Stream, 11, 9, LONG), Err(SocketError::Reset)));
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap();
}
