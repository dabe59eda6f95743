//! Plays a script against a server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{
    ConfigSpace, Header, InflightSpec, RegionSpec, RingAddresses, RingEvent, RingValue,
    emit_region, emit_table,
};
use causeway_attach::vhost_user::server::features;
use causeway_attach::{Device as ServerDevice, Event, Model};
use causeway_memory::copy::copy;
use causeway_memory::{Map, Mapping, Region, Span};
use causeway_ring::Chain;
use causeway_ring::driver::{Driver, Layout};

use super::script::{Device, Message, Step, bits, parse};
use crate::common::{Bench, USER, event, memory};

/// Bytes of guest memory: 1 MiB of rings and buffers for each of at most 4 queues.
const LEN: u64 = 4 << 20;
/// Bytes of memory of one queue.
const QUEUE_BYTES: u64 = 1 << 20;
/// Offset of a queue's buffer in its memory.
const BUFFER: u64 = 1 << 19;
/// Length of the frames.
const FRAME: u32 = 300;
const CID: u64 = 3;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn model(device: Device) -> Model {
    match device {
        Device::Net(pairs) => {
            let mut config = MAC.to_vec();
            config.extend([1, 0, pairs as u8, 0, 0xdc, 5]);
            // MAC, MRG_RXBUF, STATUS and MQ.
            let mq = if pairs > 1 { 1 << 22 } else { 0 };
            Model::new(pairs * 2, 1 << 5 | 1 << 15 | 1 << 16 | mq, config).in_pairs()
        }
        Device::Vsock => Model::new(3, 1 << 1, CID.to_le_bytes().to_vec()),
    }
}

/// One queue of the guest's driver.
#[derive(Debug, Default)]
struct GuestQueue {
    size: u16,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
}

/// A frontend that follows a script, with its guest.
struct Player {
    bench: Bench,
    device: Device,
    map: Map,
    queues: Vec<GuestQueue>,
    /// The last offers: features and protocol features.
    offered: (u64, u64),
    acked: u64,
    inflight: Option<(Vec<u8>, OwnedFd)>,
    was_used: bool,
}

/// Plays a script; a wrong answer panics with its line.
pub fn play(name: &str, text: &str) {
    let (device, steps) = parse(text);
    let mut bench = Bench::of(model(device));
    bench.memory = memory(LEN);
    let mapping = Arc::new(Mapping::new(bench.memory.as_fd(), 0, LEN).unwrap());
    let map = Map::new(vec![Region { guest: 0, user: 0, mapping }]).unwrap();
    let count = bench.server.device().queues.len();
    let queues = std::iter::repeat_with(GuestQueue::default).take(count).collect();
    let (offered, inflight) = ((0, 0), None);
    let mut player =
        Player { bench, device, map, queues, offered, acked: 0, inflight, was_used: false };
    for (line, step) in steps {
        let at = format!("{name}, line {line}");
        match step {
            Step::Send(message) => player.send(&at, &message),
            Step::Traffic => player.traffic(&at),
        }
    }
    assert!(player.was_used, "{name}: a script ends with traffic");
}

impl Player {
    /// Sends a message and checks the answer.
    fn send(&mut self, at: &str, message: &Message) {
        let request = message.request;
        let at = format!("{at}: {request:?}");
        let (payload, fds) = self.payload(&at, message);
        let mut header = Header::request(request, payload.len() as u32);
        if message.acknowledge {
            header = header.need_reply();
        }
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let sent = self.bench.send_with_header(header, &payload, &borrowed);
        sent.unwrap_or_else(|fault| panic!("{at}: {fault}"));
        let reply = self.bench.reply();
        if !has_reply(request) {
            match reply {
                Some(raw) => {
                    assert!(message.acknowledge, "{at}: an unwanted acknowledgement");
                    assert_eq!(raw.payload, 0_u64.to_ne_bytes(), "{at}: refused");
                }
                None => assert!(!message.acknowledge, "{at}: no acknowledgement"),
            }
            return;
        }
        let mut raw = reply.unwrap_or_else(|| panic!("{at}: no reply"));
        match request {
            R::GET_CONFIG => {
                let expected = match self.device {
                    Device::Net(_) => MAC.to_vec(),
                    Device::Vsock => CID.to_le_bytes().to_vec(),
                };
                assert_eq!(raw.payload[12..][..expected.len()], expected, "{at}");
            }
            R::GET_INFLIGHT_FD => {
                let file = raw.fds.pop().unwrap().as_fd().try_clone_to_owned().unwrap();
                self.inflight = Some((raw.payload, file));
            }
            R::GET_VRING_BASE => {
                let value = u32::from_ne_bytes(raw.payload[4..].try_into().unwrap());
                check_number(&at, u64::from(value), &message.expected);
            }
            _ => {
                let number = u64::from_ne_bytes(raw.payload.try_into().unwrap());
                self.check(&at, message, number);
            }
        }
    }

    /// Checks and keeps the number of a reply.
    fn check(&mut self, at: &str, message: &Message, number: u64) {
        match message.request {
            R::GET_FEATURES => self.offered.0 = number,
            R::GET_PROTOCOL_FEATURES => self.offered.1 = number,
            _ => return check_number(at, number, &message.expected),
        }
        let (with, without) = bits(message.request, &message.expected, 0);
        assert_eq!(number & with, with, "{at}: {number:#x}");
        assert_eq!(number & without, 0, "{at}: {number:#x}");
    }

    /// Returns the payload and descriptors of a message.
    fn payload(&mut self, at: &str, message: &Message) -> (Vec<u8>, Vec<OwnedFd>) {
        let number = |n: usize| -> u32 {
            let field = message.fields.get(n).unwrap_or_else(|| panic!("{at}: field {n}"));
            field.parse().unwrap_or_else(|_| panic!("{at}: {field:?} is no number"))
        };
        let none = Vec::new;
        let file = || self.bench.memory.try_clone().unwrap();
        match message.request {
            R::SET_FEATURES | R::SET_PROTOCOL_FEATURES => {
                let is_protocol = message.request == R::SET_PROTOCOL_FEATURES;
                let offered = if is_protocol { self.offered.1 } else { self.offered.0 };
                let (with, without) = bits(message.request, &message.fields, offered);
                let value = with & !without;
                if !is_protocol {
                    self.acked = value;
                }
                (value.to_ne_bytes().to_vec(), none())
            }
            R::SET_MEM_TABLE => {
                let regions = regions(u64::from(number(0)));
                (emit_table(&regions), regions.iter().map(|_| file()).collect())
            }
            R::ADD_MEM_REG => {
                let all = regions(u64::from(number(1)));
                (emit_region(&all[number(0) as usize]), vec![file()])
            }
            R::SET_VRING_NUM => {
                let (index, value) = (number(0), number(1));
                self.queues[index as usize].size = value as u16;
                (RingValue { index, value }.emit(), none())
            }
            R::SET_VRING_BASE | R::SET_VRING_ENABLE => {
                (RingValue { index: number(0), value: number(1) }.emit(), none())
            }
            R::GET_VRING_BASE => (RingValue { index: number(0), value: 0 }.emit(), none()),
            R::SET_VRING_ADDR => {
                let index = number(0);
                let layout = self.layout(index as usize);
                let addresses = RingAddresses {
                    index,
                    flags: 0,
                    descriptors: USER + layout.desc().0,
                    used: USER + layout.used().0,
                    available: USER + layout.avail().0,
                    log: 0,
                };
                (addresses.emit(), none())
            }
            R::SET_VRING_KICK | R::SET_VRING_CALL | R::SET_VRING_ERR => {
                self.ring_event(message.request, number(0))
            }
            R::SET_BACKEND_REQ_FD => (none_bytes(), vec![crate::common::sockets().0]),
            R::GET_CONFIG => {
                let size = number(0);
                let bytes = vec![0; size as usize];
                (ConfigSpace { offset: 0, size, flags: 0, bytes }.emit(), none())
            }
            R::GET_INFLIGHT_FD => {
                let (queues, ring_size) = (number(0) as u16, number(1) as u16);
                let spec = InflightSpec { len: 0, offset: 0, queues, ring_size, padded: true };
                (spec.emit(), none())
            }
            R::SET_INFLIGHT_FD => {
                let (payload, file) = self.inflight.take().expect("GET_INFLIGHT_FD precedes");
                (payload, vec![file])
            }
            R::SET_STATUS => (u64::from(number(0)).to_ne_bytes().to_vec(), none()),
            _ => (none_bytes(), none()),
        }
    }

    /// Returns a message with a new event of a queue, and keeps the events that the test uses.
    fn ring_event(&mut self, request: R, index: u32) -> (Vec<u8>, Vec<OwnedFd>) {
        let event = event();
        let kept = Some(event.try_clone().unwrap());
        let queue = &mut self.queues[index as usize];
        match request {
            R::SET_VRING_KICK => queue.kick = kept,
            R::SET_VRING_CALL => queue.call = kept,
            _ => {}
        }
        (RingEvent::emit(index, true), vec![event])
    }

    fn layout(&self, index: usize) -> Layout {
        let size = self.queues[index].size;
        Layout { base: index as u64 * QUEUE_BYTES, size, table_entries: 0 }
    }

    /// Moves a frame through each pair of running queues: the guest sends it, the service copies it
    /// into a buffer of the receive queue, and the guest finds it there and is notified.
    fn traffic(&mut self, at: &str) {
        let mut pairs = 0;
        for pair in 0..self.queues.len() / 2 {
            let device = self.bench.server.device();
            if device.is_running(pair * 2) && device.is_running(pair * 2 + 1) {
                self.exchange(at, pair);
                pairs += 1;
            }
        }
        assert!(pairs > 0, "{at}: no queue pair runs");
        let started = |n: usize| self.bench.events.contains(&Event::QueueStarted(n));
        assert!((0..pairs * 2).all(started), "{at}: {:?}", self.bench.events);
        self.was_used = true;
    }

    fn exchange(&mut self, at: &str, pair: usize) {
        let sent: Vec<u8> = (0..FRAME).map(|n| (n as usize * 7 + pair) as u8).collect();
        let span = |queue: usize| Span { addr: queue as u64 * QUEUE_BYTES + BUFFER, len: FRAME };
        let (receive, send) = (pair * 2, pair * 2 + 1);
        self.map.write(span(send).addr, &sent).unwrap();
        let event_index = self.acked & features::EVENT_IDX != 0;
        let mut drivers = [receive, send]
            .map(|queue| Driver::new(self.layout(queue), event_index, false, &self.map).unwrap());
        drivers[0].add(&self.map, &[], &[span(receive)]).unwrap();
        drivers[1].add(&self.map, &[span(send)], &[]).unwrap();
        for (driver, queue) in drivers.iter_mut().zip([receive, send]) {
            driver.arm().unwrap();
            driver.publish().unwrap();
            let doorbell = self.queues[queue].kick.as_ref().expect("SET_VRING_KICK");
            rustix::io::write(doorbell, &1_u64.to_ne_bytes()).unwrap();
            let served = self.bench.server.device().queues[queue].doorbell();
            served.unwrap_or_else(|| panic!("{at}: queue {queue} has no doorbell")).drain();
            if let Some(call) = &self.queues[queue].call {
                let _ = rustix::io::read(call, &mut [0; 8]);
            }
        }
        echo(self.bench.server.device_mut(), receive);
        for (driver, queue) in drivers.iter_mut().zip([receive, send]) {
            let used = driver.take().unwrap();
            assert!(used.is_some(), "{at}: queue {queue} has no used chain");
            if let Some(call) = &self.queues[queue].call {
                let told = rustix::io::read(call, &mut [0; 8]);
                assert_eq!(told, Ok(8), "{at}: queue {queue} was not notified");
            }
        }
        let mut got = vec![0; FRAME as usize];
        self.map.read(span(receive).addr, &mut got).unwrap();
        assert!(got == sent, "{at}: the frame of pair {pair} differs");
    }
}

/// Returns whether a request has a reply of its own.
fn has_reply(request: R) -> bool {
    format!("{request:?}").starts_with("GET_")
}

fn none_bytes() -> Vec<u8> {
    Vec::new()
}

/// Checks a number against the expected number, if the script has one.
fn check_number(at: &str, number: u64, expected: &[String]) {
    if let Some(expected) = expected.first() {
        assert_eq!(&number.to_string(), expected, "{at}");
    }
}

/// Returns the guest's memory as `count` regions of equal length.
fn regions(count: u64) -> Vec<RegionSpec> {
    let len = LEN / count;
    let region = |n| RegionSpec { guest: n * len, len, user: USER + n * len, offset: n * len };
    (0..count).map(region).collect()
}

/// Copies the frame of the send queue into a buffer of queue `receive`.
fn echo(device: &mut ServerDevice, receive: usize) {
    let map = Arc::clone(&device.map);
    let [to, from] = &mut device.queues[receive..receive + 2] else { unreachable!() };
    let (rx, tx) = (to.ring.as_mut().unwrap(), from.ring.as_mut().unwrap());
    let (mut frame, mut buffer) = (Chain::new(), Chain::new());
    assert!(tx.pop(&map, &mut frame).unwrap() && rx.pop(&map, &mut buffer).unwrap());
    let (mut reader, mut writer) = (frame.reader(), buffer.writer());
    let len = reader.remaining();
    copy((&map, &mut reader), (&map, &mut writer), len).unwrap();
    rx.push(buffer.head(), len as u32).unwrap();
    tx.push(frame.head(), 0).unwrap();
    if rx.publish().unwrap() {
        to.notify().unwrap();
    }
    if tx.publish().unwrap() {
        from.notify().unwrap();
    }
}
