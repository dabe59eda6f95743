//! Ethernet ping-pong between two processes, each attached to a port of kind `net`.
//!
//! ```text
//! ethernet-ping SOCKET                    answers frames until it is killed
//! ethernet-ping SOCKET PEER-MAC [COUNT]   sends COUNT frames, one after the answer to the last
//! ```
//!
//! A process attaches as QEMU does, by the port's Unix socket, and needs no privilege beyond write
//! access to it. The native front end holds the rings and the buffers in shared memory; causewayd
//! copies each frame once, from the sender's buffer into the receiver's.
//!
//! COUNT is 1,000 by default. An answer may take 10 s; a lost frame is not repeated. A failure is
//! printed, with exit status 1.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort};

/// EtherType "local experimental" (IEEE 802): no protocol stack takes these frames for its own.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of destination, source and EtherType.
const HEADER_BYTES: usize = 14;
/// Bytes of the shortest Ethernet frame, without its checksum.
const FRAME_BYTES: usize = 60;
/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (socket, rest) = arguments.split_first().ok_or("usage: SOCKET [PEER-MAC [COUNT]]")?;
    let mut port = NetPort::attach(Path::new(socket), NetOptions::default())?;
    match rest {
        [] => answer(&mut port),
        [peer] => ping(&mut port, parse_mac(peer)?, 1000),
        [peer, count, ..] => ping(&mut port, parse_mac(peer)?, count.parse()?),
    }
}

/// Sends `count` frames to `peer` and waits for the answer to each.
fn ping(port: &mut NetPort, peer: [u8; 6], count: u32) -> Result<(), Box<dyn Error>> {
    // The daemon drops frames whose source is not the address of the port.
    let own = port.mac().ok_or("the port has no MAC address")?;
    let (mut frame, started) = (Vec::new(), Instant::now());
    for number in 0..count {
        let sent = build(peer, own, number);
        send(port, &sent)?;
        receive(port, &mut frame)?;
        if frame.get(HEADER_BYTES..) != sent.get(HEADER_BYTES..) {
            return Err(format!("the answer to frame {number} has other contents").into());
        }
    }
    let each = started.elapsed().as_secs_f64() * 1e6 / f64::from(count.max(1));
    println!("{count} frames answered, {each:.1} us each");
    Ok(())
}

/// Sends each frame back to its source, with the same contents.
fn answer(port: &mut NetPort) -> Result<(), Box<dyn Error>> {
    let own = port.mac().ok_or("the port has no MAC address")?;
    let mut frame = Vec::new();
    println!("answering");
    loop {
        if port.receive(0, &mut frame)?.is_none() {
            port.wait(None)?;
            continue;
        }
        // Other frames of the group, for example of an IPv6 stack, are not for this program.
        if frame.get(12..HEADER_BYTES) != Some(&ETHER_TYPE) {
            continue;
        }
        let source: [u8; 6] = frame[6..12].try_into()?;
        frame[..6].copy_from_slice(&source);
        frame[6..12].copy_from_slice(&own);
        send(port, &frame)?;
    }
}

/// Returns a frame of the shortest length whose contents begin with `number`.
fn build(to: [u8; 6], from: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = [&to[..], &from, &ETHER_TYPE, &number.to_be_bytes()].concat();
    frame.resize(FRAME_BYTES, 0);
    frame
}

/// Sends a frame; waits while the ring is full.
fn send(port: &mut NetPort, frame: &[u8]) -> Result<(), Box<dyn Error>> {
    while !port.send(frame)? {
        port.wait_room(0, Some(PATIENCE))?;
    }
    Ok(())
}

/// Receives the next frame of this program into `frame`.
fn receive(port: &mut NetPort, frame: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    let since = Instant::now();
    loop {
        if port.receive(0, frame)?.is_some() {
            if frame.get(12..HEADER_BYTES) == Some(&ETHER_TYPE) {
                return Ok(());
            }
            continue;
        }
        let left = PATIENCE.saturating_sub(since.elapsed());
        if left.is_zero() || !port.wait(Some(left))? {
            return Err("no answer: is the other process attached, and in the same group?".into());
        }
    }
}

/// Parses six hexadecimal bytes with colons between them.
fn parse_mac(text: &str) -> Result<[u8; 6], Box<dyn Error>> {
    let bytes: Result<Vec<u8>, _> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes?.try_into().map_err(|_| format!("{text} is no MAC address").into())
}
