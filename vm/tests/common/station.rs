//! A native front end with a minimal IPv4 stack that answers pings and sends them.

use super::hosts::{PATIENCE, is_served, wait};
use causeway_attach::native::{NetOptions, NetPort};
use causeway_vm::Daemon;
use causeway_vm::daemon::Member;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const IPV4: [u8; 2] = [8, 0];
const ARP: [u8; 2] = [8, 6];
const ECHO: u8 = 8;
/// EtherType for local experiments (IEEE 802).
const BROADCAST_TYPE: [u8; 2] = [0x88, 0xb5];

/// A port with an address, and its ARP table.
pub struct Station {
    port: NetPort,
    mac: [u8; 6],
    ip: [u8; 4],
    /// Received frames, by source and EtherType.
    received: BTreeMap<([u8; 6], [u8; 2]), u32>,
    /// Number of pings sent by [`Self::ping_as`].
    pings: u16,
}

impl Station {
    pub fn attach(daemon: &Daemon, member: &Member) -> Self {
        Self::with(daemon, member, NetOptions::default())
    }

    /// Attaches a station that reconnects after a restart of its daemon.
    pub fn attach_for_long(daemon: &Daemon, member: &Member) -> Self {
        let reconnect = Some(PATIENCE);
        Self::with(daemon, member, NetOptions { reconnect, ..NetOptions::default() })
    }

    fn with(daemon: &Daemon, member: &Member, options: NetOptions) -> Self {
        let port = NetPort::attach(&daemon.net_socket(member), options).unwrap();
        let name = format!("{}-net", member.name);
        wait(|| is_served(daemon, &name), || format!("{name} does not run\n{}", daemon.log()));
        let (mac, ip) = (mac(member.number), ip(member.number));
        Self { port, mac, ip, received: BTreeMap::new(), pings: 0 }
    }

    /// Returns its IPv4 address.
    pub fn ip(&self) -> [u8; 4] {
        self.ip
    }

    /// Broadcasts a frame that no station answers.
    pub fn broadcast(&mut self) {
        self.send(&[&[0xff; 6][..], &self.mac, &BROADCAST_TYPE, &[0; 46]].concat());
    }

    /// Returns the number of broadcasts received from member `n`.
    pub fn broadcasts_from(&self, n: u8) -> u32 {
        self.received.get(&(mac(n), BROADCAST_TYPE)).copied().unwrap_or(0)
    }

    /// Returns whether any frame of member `n` has been received.
    pub fn has_received(&self, n: u8) -> bool {
        self.received.keys().any(|(from, _)| *from == mac(n))
    }

    /// Answers requests while `act` runs.
    pub fn while_answering<R>(&mut self, act: impl FnOnce() -> R) -> R {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    self.take();
                }
            });
            // Dropped also when `act` panics.
            let _stop = Stop(&done);
            act()
        })
    }

    /// Pings `ip` with `bytes` of payload, which must return unchanged. Lost packets are sent
    /// again, as by ARP and by users.
    pub fn ping(&mut self, ip: [u8; 4], bytes: usize) {
        let mac = self.resolve(ip);
        self.ping_at(mac, ip, bytes);
    }

    /// As [`Self::ping`], with a known MAC address.
    pub fn ping_at(&mut self, mac: [u8; 6], ip: [u8; 4], bytes: usize) {
        let content: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
        let start = Instant::now();
        for number in 0_u16.. {
            let echo = icmp(ECHO, number, &content);
            self.send(&[&mac[..], &self.mac, &IPV4, &packet(self.ip, ip, &echo)].concat());
            let want = icmp(0, number, &content);
            let answers = |frame: &[u8]| frame.get(26..30) == Some(&ip) && frame.ends_with(&want);
            if self.await_frame(answers).is_some() {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no answer from {ip:?} to {bytes} bytes");
        }
    }

    /// Pings `ip` by a packet of that traffic class, with a few retries. Returns the class of the
    /// reply.
    pub fn ping_as(&mut self, ip: [u8; 4], class: u8) -> Option<u8> {
        let mac = self.resolve(ip);
        (0..3).find_map(|_| self.ping_once_as(mac, ip, class))
    }

    fn ping_once_as(&mut self, mac: [u8; 6], ip: [u8; 4], class: u8) -> Option<u8> {
        // Distinct sequence numbers: a late reply does not match another ping.
        self.pings += 1;
        let echo = icmp(ECHO, self.pings, &[0; 56]);
        let packet = packet_of(class, self.ip, ip, &echo);
        self.send(&[&mac[..], &self.mac, &IPV4, &packet].concat());
        let want = icmp(0, self.pings, &[0; 56]);
        let answers = |frame: &[u8]| frame.get(26..30) == Some(&ip) && frame.ends_with(&want);
        let frame = self.await_frame(answers)?;
        assert_eq!(sum(&frame[14..34]), 0, "the answer's IP header is corrupted");
        Some(frame[15])
    }

    fn resolve(&mut self, ip: [u8; 4]) -> [u8; 6] {
        let start = Instant::now();
        loop {
            let ask = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &self.mac, &self.ip, &[0; 6], &ip].concat();
            self.send(&[&[0xff; 6][..], &self.mac, &ARP, &ask, &[0; 18]].concat());
            let answers = |f: &[u8]| f[12..14] == ARP && f[20..22] == [0, 2] && f[28..32] == ip;
            if let Some(frame) = self.await_frame(answers) {
                return frame[22..28].try_into().unwrap();
            }
            assert!(start.elapsed() < PATIENCE, "no ARP reply from {ip:?}");
        }
    }

    /// Returns the next frame that `fits`, if it arrives in time.
    fn await_frame(&mut self, fits: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            if let Some(frame) = self.take().filter(|frame| fits(frame)) {
                return Some(frame);
            }
        }
        None
    }

    /// Returns the next frame, if it arrives in time; answers a request to this station.
    fn take(&mut self) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        if self.port.receive(0, &mut frame).unwrap().is_none() {
            self.port.wait(Some(Duration::from_millis(50))).unwrap();
            self.port.receive(0, &mut frame).unwrap()?;
        }
        let kind = (frame[6..12].try_into().unwrap(), frame[12..14].try_into().unwrap());
        *self.received.entry(kind).or_default() += 1;
        let back = [&frame[6..12], &self.mac, &frame[12..14]].concat();
        if frame[12..14] == ARP && frame[20..22] == [0, 1] && frame[38..42] == self.ip {
            let (asker, head) = (&frame[22..32], [0, 1, 8, 0, 6, 4, 0, 2]);
            self.send(&[&back[..], &head, &self.mac, &self.ip, asker, &[0; 18]].concat());
        } else if frame[12..14] == IPV4 && frame[30..34] == self.ip && frame[23] == 1 {
            let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let (from, echo) = (frame[26..30].try_into().unwrap(), &frame[34..end]);
            assert_eq!(sum(echo), 0, "an echo request is corrupted");
            if echo[0] == ECHO {
                let number = u16::from_be_bytes([echo[6], echo[7]]);
                let answer = icmp_of(0, [echo[4], echo[5]], number, &echo[8..]);
                self.send(&[&back[..], &packet(self.ip, from, &answer)].concat());
            }
        }
        Some(frame)
    }

    fn send(&mut self, frame: &[u8]) {
        while !self.port.send(frame).unwrap() {
            self.port.wait_room(0, Some(Duration::from_millis(50))).unwrap();
        }
    }
}

/// Returns the MAC address of member `n`.
pub fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0x77, 0, n]
}

/// Returns the IPv4 address of member `n`.
pub fn ip(n: u8) -> [u8; 4] {
    [10, 77, 0, n]
}

fn icmp(kind: u8, number: u16, content: &[u8]) -> Vec<u8> {
    icmp_of(kind, [0x77, 0x77], number, content)
}

fn icmp_of(kind: u8, id: [u8; 2], number: u16, content: &[u8]) -> Vec<u8> {
    let mut echo = [&[kind, 0, 0, 0][..], &id, &number.to_be_bytes(), content].concat();
    let check = sum(&echo);
    echo[2..4].copy_from_slice(&check.to_be_bytes());
    echo
}

/// Builds an IPv4 packet with ICMP.
fn packet(from: [u8; 4], to: [u8; 4], content: &[u8]) -> Vec<u8> {
    packet_of(0, from, to, content)
}

fn packet_of(class: u8, from: [u8; 4], to: [u8; 4], content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + content.len()).unwrap().to_be_bytes();
    let mut head = [&[0x45, class][..], &len, &[0, 0, 0x40, 0, 64, 1, 0, 0], &from, &to].concat();
    let check = sum(&head);
    head[10..12].copy_from_slice(&check.to_be_bytes());
    head.extend_from_slice(content);
    head
}

/// Returns the Internet checksum (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
