//! Socket rows: a stream by write size, and the way there and back.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use causeway_attach::native::{VsockOptions, VsockPort};
use causeway_wire::vsock::{Header, Op, Type};

use crate::rig::{RING, Rig};

/// Receive space that both sides grant, in bytes.
const WINDOW: u32 = 1 << 20;

fn options() -> VsockOptions {
    VsockOptions { features: RING, ..VsockOptions::default() }
}

fn header(from: u32, to: u32, op: Op, len: u32, consumed: u32) -> Header {
    Header {
        src_cid: from.into(),
        dst_cid: to.into(),
        src_port: from,
        dst_port: to,
        len,
        kind: Type::Stream.raw(),
        op: op.raw(),
        flags: 0,
        buf_alloc: WINDOW,
        fwd_cnt: consumed,
    }
}

fn say(port: &mut VsockPort, header: &Header, data: &[u8]) {
    while !port.queue(header, data).expect("the port lives") {
        spin_loop();
    }
    port.flush().expect("the port lives");
}

/// The next packet, by looking without end, or by sleeping on the notification.
fn next(port: &mut VsockPort, room: &mut Vec<u8>, sleep: bool) -> Header {
    loop {
        if let Some(header) = port.receive(room).expect("the port lives") {
            port.flush().expect("the port lives");
            return header;
        }
        if sleep {
            port.wait(false, Some(Duration::from_secs(10))).expect("the port lives");
        } else {
            spin_loop();
        }
    }
}

/// Two ports with a connection from CID 3 to CID 4.
fn connected(rig: &Rig) -> (VsockPort, VsockPort) {
    let (mut a, mut b) = (rig.vsock(3, options()), rig.vsock(4, options()));
    let mut room = Vec::new();
    say(&mut a, &header(3, 4, Op::Request, 0, 0), &[]);
    assert_eq!(next(&mut b, &mut room, true).operation(), Some(Op::Request));
    say(&mut b, &header(4, 3, Op::Response, 0, 0), &[]);
    assert_eq!(next(&mut a, &mut room, true).operation(), Some(Op::Response));
    (a, b)
}

/// Bytes per second of one connection, written `write` bytes at a time into receive buffers of
/// 4 KiB, in GB/s. One thread writes and reads; the dispatcher has the other core.
pub fn stream_gbps(write: usize) -> f64 {
    let rig = Rig::new(Duration::from_millis(100));
    let (mut a, mut b) = connected(&rig);
    let data = vec![7_u8; write];
    let total = if write < 1024 { 16_usize << 20 } else { 1 << 30 };
    let (mut sent, mut got, mut told, mut credit) = (0_usize, 0_usize, 0_usize, 0_u32);
    let mut room = Vec::new();
    let since = Instant::now();
    while got < total {
        let mut queued = 0;
        while queued < 32 && sent < total {
            let outstanding = (sent as u32).wrapping_sub(credit) as usize;
            let fits = outstanding + write <= WINDOW as usize;
            let packet = header(3, 4, Op::Data, write as u32, 0);
            if !fits || !a.queue(&packet, &data).expect("the port lives") {
                break;
            }
            sent += write;
            queued += 1;
        }
        if queued > 0 {
            a.flush().expect("the port lives");
        }
        let mut taken = 0;
        while taken < 256
            && let Some(packet) = b.receive(&mut room).expect("the port lives")
        {
            got += packet.len as usize;
            taken += 1;
        }
        if taken > 0 {
            b.flush().expect("the port lives");
        }
        if got - told >= WINDOW as usize / 4 {
            told = got;
            say(&mut b, &header(4, 3, Op::CreditUpdate, 0, got as u32), &[]);
        }
        while let Some(packet) = a.receive(&mut room).expect("the port lives") {
            assert_ne!(packet.operation(), Some(Op::Reset), "the connection was reset");
            credit = packet.fwd_cnt;
        }
    }
    total as f64 / since.elapsed().as_secs_f64() / 1e9
}

/// Half a round trip of `bytes` between two ports, in microseconds. `sleep`: everyone sleeps
/// while there is nothing, else everyone polls.
pub fn half_trip_us(bytes: usize, sleep: bool) -> f64 {
    let rounds = if sleep { 5_000_u32 } else { 100_000 };
    let spin = if sleep { Duration::ZERO } else { Duration::from_millis(100) };
    let rig = Rig::new(spin);
    let (mut a, mut b) = connected(&rig);
    let data = vec![1_u8; bytes];
    let (len, mut room) = (bytes as u32, Vec::new());
    let since = Instant::now();
    for i in 0..rounds {
        let consumed = i.wrapping_mul(len);
        say(&mut a, &header(3, 4, Op::Data, len, consumed), &data);
        next(&mut b, &mut room, sleep);
        say(&mut b, &header(4, 3, Op::Data, len, consumed.wrapping_add(len)), &data);
        next(&mut a, &mut room, sleep);
    }
    since.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / 2.0
}
