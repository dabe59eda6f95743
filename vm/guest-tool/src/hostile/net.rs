//! Cases of a network device: frames and headers, valid and invalid.
//!
//! A case initialises the device and sends its frames, posts its receive buffers or writes the
//! configuration space; it waits for no answer. [`Kind::settle`] waits at most 400 ms for the link
//! to go down, which is how a closed port appears to the guest. [`Kind::talks`] initialises the
//! device, sends one frame and waits 400 ms for the echo of the peer; `super` repeats it. Frames
//! that must be delivered although they are unusual count as cases, too. A case that is unknown
//! here is `None`. `rings` has the cases of every device.

use super::Kind;
use super::device::{Device, FEATURES, NEXT, SIZE, WRITE};
use super::pci::Part;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

const RX: u16 = 0;
const TX: u16 = 1;
/// Size of the virtio-net header, in bytes.
const HEADER: usize = 12;
/// Offset of the link status in the configuration space.
const LINK: u32 = 6;
/// Receive buffers of a correct driver, from page 0.
const RECEIVE: u16 = 16;
/// Page of the first transmit buffer.
const SEND: usize = 20;
/// Time limit for a violation to bring the link down.
const SETTLES: Duration = Duration::from_millis(400);
/// Wait for an echo before the device is initialised again.
const ECHO: Duration = Duration::from_millis(400);

/// MAC addresses of the device and of its peer.
#[derive(Debug)]
pub struct Net {
    own: [u8; 6],
    peer: [u8; 6],
}

/// `struct virtio_net_hdr_v1` (virtio 1.3, section 5.1.6).
#[derive(Debug, Clone, Copy, Default)]
struct Header {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
    num_buffers: u16,
}

impl Header {
    fn bytes(self) -> Vec<u8> {
        let words =
            [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset, self.num_buffers];
        let words = words.iter().flat_map(|w| w.to_le_bytes());
        [self.flags, self.gso_type].into_iter().chain(words).collect()
    }
}

impl Kind for Net {
    const NUMBERS: &'static [&'static str] = &["0x1000", "0x1041"];
    /// MAC address, link status, checksum and segmentation offload, so that headers are checked.
    const FEATURES: u64 = FEATURES | 1 << 5 | 1 << 16 | 1 | 1 << 11 | 1 << 12;

    fn new(device: &mut Device, peer: &str) -> io::Result<Self> {
        let mut own = [0; 6];
        for (at, byte) in own.iter_mut().enumerate() {
            [*byte] = device.pci.read(Part::Device, at as u32)?;
        }
        let wrong = || io::Error::other(format!("{peer} is no MAC address"));
        let bytes: Vec<u8> =
            peer.split(':').filter_map(|b| u8::from_str_radix(b, 16).ok()).collect();
        Ok(Self { own, peer: bytes.try_into().map_err(|_| wrong())? })
    }

    fn case(&self, device: &mut Device, name: &str) -> Option<io::Result<()>> {
        let plain = Header::default();
        let asks = Header { flags: 1, gso_type: 1, hdr_len: 54, gso_size: 100, ..plain };
        let headers: &[Header] = match name {
            "segmentation_of_no_kind" => {
                &[2, 6, 0x42, 0x7f, 0xff].map(|gso_type| Header { gso_type, ..asks })
            }
            "segments_of_no_size" => {
                &[Header { csum_start: 34, csum_offset: 16, gso_size: 0, ..asks }]
            }
            "segments_of_one_byte" => {
                &[Header { csum_start: 34, csum_offset: 16, gso_size: 1, ..asks }]
            }
            "checksum_outside_the_frame" => &[(60, 0), (0xffff, 0xffff), (59, 1), (0, 0xfff0)].map(
                |(csum_start, csum_offset)| Header { flags: 1, csum_start, csum_offset, ..plain },
            ),
            "header_lengths_that_lie" => {
                &[0, 1, 13, 61, 0xffff].map(|hdr_len| Header { hdr_len, ..asks })
            }
            "header_of_random_bytes" => &[Header {
                flags: 0xff,
                gso_type: 0xa5,
                hdr_len: 0x5a5a,
                gso_size: 0xdead,
                csum_start: 0xbeef,
                csum_offset: 0x1234,
                num_buffers: 0xffff,
            }],
            _ => return self.other_case(device, name),
        };
        Some(self.with_headers(device, headers))
    }

    fn settle(&self, device: &mut Device) -> io::Result<bool> {
        let start = Instant::now();
        while start.elapsed() < SETTLES {
            if device.pci.read::<2>(Part::Device, LINK)?[0] & 1 == 0 {
                return Ok(true);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }

    fn talks(&self, device: &mut Device) -> io::Result<bool> {
        device.start(Self::FEATURES)?;
        for n in 0..RECEIVE {
            device.describe(RX, n, (device.buffer(usize::from(n)), 4096), WRITE, 0)?;
            device.offer(RX, n)?;
        }
        device.ring(RX)?;
        let asked = self.frame(self.own, b"are you there?");
        let answer = [&self.own[..], &self.peer, &asked[12..]].concat();
        self.send(device, Header::default(), &asked)?;
        let (start, mut seen) = (Instant::now(), 0);
        while start.elapsed() < ECHO {
            while seen != device.used(RX)? {
                let (head, len) = device.used_entry(RX, seen)?;
                let mut bytes = vec![0; (len as usize).clamp(HEADER, 4096)];
                device.pages.read(super::device::BUFFERS + head as usize % 16, 0, &mut bytes)?;
                if bytes[HEADER..] == answer {
                    return Ok(true);
                }
                seen = seen.wrapping_add(1);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(false)
    }
}

impl Net {
    /// Builds a frame to the peer, 60 bytes long.
    fn frame(&self, from: [u8; 6], payload: &[u8]) -> Vec<u8> {
        let mut frame = [&self.peer[..], &from, &[0x88, 0xb5], payload].concat();
        frame.resize(60, 0);
        frame
    }

    fn send(&self, device: &mut Device, header: Header, frame: &[u8]) -> io::Result<()> {
        device.fill(SEND, 0, &[&header.bytes(), frame].concat())?;
        let len = (HEADER + frame.len()) as u32;
        device.describe(TX, 0, (device.buffer(SEND), len), 0, 0)?;
        device.offer(TX, 0)?;
        device.ring(TX)
    }

    /// Sends frames that look like TCP over IPv4, with these virtio-net headers.
    fn with_headers(&self, device: &mut Device, headers: &[Header]) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        let mut frame = self.frame(self.own, &[]);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 6]);
        frame[46] = 0x50;
        for (n, header) in headers.iter().enumerate() {
            let page = SEND + n;
            device.fill(page, 0, &[&header.bytes()[..], &frame].concat())?;
            device.describe(TX, n as u16, (device.buffer(page), 72), 0, 0)?;
            device.offer(TX, n as u16)?;
        }
        device.ring(TX)
    }

    fn other_case(&self, device: &mut Device, name: &str) -> Option<io::Result<()>> {
        Some(match name {
            "forged_source" => self.forged(device),
            "runts" => self.runts(device),
            "frame_too_long" => self.too_long(device),
            "frame_in_single_bytes" => self.single_bytes(device),
            "receive_chain_without_end" => self.receive(device, |at| (at, 2048, WRITE | NEXT, 0)),
            "receive_buffers_read_only" => self.receive(device, |at| (at, 2048, 0, 0)),
            "receive_buffers_in_a_hole" => {
                self.receive(device, |_| (0x3f_ffff_0000, 2048, WRITE, 0))
            }
            "receive_buffers_of_no_bytes" => self.receive(device, |at| (at, 0, WRITE, 0)),
            "config_written_while_running" => self.config(device),
            _ => return None,
        })
    }

    fn forged(&self, device: &mut Device) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        for from in [self.peer, [0xff; 6], [0; 6], [1, 0, 0x5e, 0, 0, 1]] {
            self.send(device, Header::default(), &self.frame(from, b"forged"))?;
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn runts(&self, device: &mut Device) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        let at = device.buffer(SEND);
        for (n, len) in [1_u32, 10, 11, 12, 13, 17, 24, 25, 26].into_iter().enumerate() {
            device.describe(TX, n as u16, (at, len), 0, 0)?;
            device.offer(TX, n as u16)?;
        }
        device.ring(TX)
    }

    fn too_long(&self, device: &mut Device) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        let frame = self.frame(self.own, &[]);
        device.fill(SEND, 0, &[&Header::default().bytes()[..], &frame].concat())?;
        for n in 0..40 {
            let flags = if n < 39 { NEXT } else { 0 };
            device.describe(TX, n, (device.buffer(SEND), 4096), flags, n + 1)?;
        }
        device.offer(TX, 0)?;
        device.ring(TX)
    }

    /// Valid but unusual: a header and a frame with a descriptor for each byte.
    fn single_bytes(&self, device: &mut Device) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        let frame = self.frame(self.own, b"bit by bit");
        device.fill(SEND, 0, &[&Header::default().bytes()[..], &frame].concat())?;
        for n in 0..SIZE {
            let flags = if n + 1 < SIZE { NEXT } else { 0 };
            device.describe(TX, n, (device.buffer(SEND) + u64::from(n), 1), flags, n + 1)?;
        }
        device.offer(TX, 0)?;
        device.ring(TX)
    }

    /// Adds receive buffers that `what` derives from a page's address, and requests an echo into
    /// them.
    fn receive(
        &self,
        device: &mut Device,
        what: impl Fn(u64) -> (u64, u32, u16, u16),
    ) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        let (addr, len, flags, next) = what(device.buffer(0));
        for n in 0..RECEIVE {
            device.describe(RX, n, (addr, len), flags, next)?;
            device.offer(RX, n)?;
        }
        device.ring(RX)?;
        self.send(device, Header::default(), &self.frame(self.own, b"come back"))
    }

    fn config(&self, device: &mut Device) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        for round in 0..50_u8 {
            for at in 0..12 {
                device.pci.write(Part::Device, at, &[round ^ at as u8])?;
            }
        }
        device.ring(TX)
    }
}
