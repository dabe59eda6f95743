//! Receivers without room: queued data, unaffected connections, and resets.

use crate::common::*;
use causeway_attach::native::{Sockets, VsockOptions, VsockPort};
use causeway_wire::vsock::{Op, Type};

fn small() -> VsockOptions {
    VsockOptions { ring_size: 16, ..VsockOptions::default() }
}

/// Sends `count` packets of `len` bytes on an open connection, as far as the ring has room.
fn burst(port: &mut VsockPort, from: u32, to: (u32, u32), count: usize, len: usize) -> usize {
    let header = packet((port.cid() as u32, from), to, Op::Data, len as u32);
    let data = pattern(1, len);
    (0..count)
        .take_while(|_| {
            let fits = port.queue(&header, &data).unwrap();
            port.flush().unwrap();
            fits
        })
        .count()
}

#[test]
fn data_waits_in_order_until_the_receiver_has_room() {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    let mut b = rig.port_with("red", 4, small());
    open(&mut a, &mut b, 1, 2);
    let data = pattern(9, 200_000);
    for part in data.chunks(5000) {
        send(&mut a, &packet((3, 1), (4, 2), Op::Data, part.len() as u32), part);
    }
    wait(|| rig.counter("red", 3, "transmit_held_total") > 0, || "nothing waits".into());
    let (mut got, mut room) = (Vec::new(), Vec::new());
    while got.len() < data.len() {
        receive(&mut b, &mut room);
        got.extend_from_slice(&room);
    }
    assert!(got == data);
    // All descriptors returned: the ring has its whole size again.
    wait(|| a.is_idle().unwrap(), || "descriptors are missing".into());
}

#[test]
fn hostile_receiver_that_takes_nothing_loses_its_connection_and_holds_up_nobody() {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    let mut b = rig.port_with("red", 4, small());
    let mut c = rig.port("red", 5);
    // Many connections, so that credit alone does not bound the data from A to B.
    for i in 0..60 {
        open(&mut a, &mut b, 100 + i, 200 + i);
    }
    open(&mut a, &mut c, 1, 2);
    let mut sent = 0;
    for i in 0..60 {
        sent += burst(&mut a, 100 + i, (4, 200 + i), 4, 60_000);
    }
    assert!(sent >= 70);
    // B receives nothing. A's packet for C passes at the latest when B's time is over.
    wait(|| burst(&mut a, 1, (5, 2), 1, 1000) == 1, || "A's ring stays full".into());
    let mut room = Vec::new();
    assert_eq!(receive(&mut c, &mut room).len, 1000);
    assert!(room == pattern(1, 1000));
    // The sender gets a reset as well.
    wait(|| rig.counter("red", 4, "reset_stalled_total") > 0, || "B was never given up".into());
    assert_eq!(next_op(&mut a), Op::Reset);
    let notice = rig.wait_notice("red", 4);
    assert!(notice.contains("does not run"), "{notice}");
    assert_eq!(rig.view("red", 4).faults_total, 0, "it broke no rule");
    // Data that still waits for B within its quota ends with B.
    drop(b);
    wait(|| a.is_idle().unwrap(), || "descriptors are missing".into());
}

#[test]
fn hostile_drip_of_buffers_does_not_hold_up_the_sender_for_ever() {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    let mut b = rig.port_with("red", 4, small());
    for i in 0..60 {
        open(&mut a, &mut b, 100 + i, 200 + i);
    }
    for i in 0..60 {
        burst(&mut a, 100 + i, (4, 200 + i), 4, 60_000);
    }
    let mut room = Vec::new();
    wait(
        || {
            // One buffer of 4 KiB now and then.
            std::thread::sleep(std::time::Duration::from_millis(200));
            b.receive(&mut room).unwrap();
            b.flush().unwrap();
            rig.counter("red", 4, "reset_stalled_total") > 0
        },
        || "the drip was waited for".into(),
    );
}

#[test]
fn two_guests_that_only_send_do_not_deadlock() {
    let rig = Rig::new();
    let (mut a, mut b) = (rig.sockets("red", 3), rig.sockets("red", 4));
    let pairs: Vec<_> = (0..8).map(|i| join(&mut a, &mut b, Type::Stream, 10 + i)).collect();
    let data = pattern(3, 200_000);
    let both = |s: &mut Sockets, ids: &[_]| {
        for id in ids {
            let mut at = 0;
            while at < data.len() {
                let now = s.try_send(*id, &data[at..]).unwrap();
                at += now;
                if now == 0 {
                    break;
                }
            }
        }
    };
    let (ca, cb): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    both(&mut a, &ca);
    both(&mut b, &cb);
    // Both have sent as much as credit allows and have read nothing. All data can be read now.
    for (s, ids) in [(&mut b, &cb), (&mut a, &ca)] {
        for id in ids.iter() {
            let mut got = vec![0; 60_000];
            s.receive(*id, &mut got, PATIENCE).unwrap();
            assert!(got == data[..60_000]);
        }
    }
}

#[test]
fn data_held_over_a_change_of_the_memory_table_arrives() {
    let rig = Rig::new();
    let mut a = rig.port("red", 3);
    let mut b = rig.port_with("red", 4, small());
    open(&mut a, &mut b, 1, 2);
    let data = pattern(9, 150_000);
    for part in data.chunks(5000) {
        send(&mut a, &packet((3, 1), (4, 2), Op::Data, part.len() as u32), part);
    }
    wait(|| rig.counter("red", 3, "transmit_held_total") > 0, || "nothing waits".into());
    // A new region makes a new epoch, in which held chains are resolved again.
    let extra = causeway_memory::create("extra", 1 << 20).unwrap();
    let before = rig.view("red", 3).memory_bytes;
    let region = causeway_attach::vhost_user::message::RegionSpec {
        guest: 1 << 40,
        len: 1 << 20,
        user: 1 << 46,
        offset: 0,
    };
    let fd = std::os::fd::AsFd::as_fd(&extra);
    a.frontend().client().grant(&region, fd).unwrap();
    wait(|| rig.view("red", 3).memory_bytes == before + (1 << 20), || "not granted".into());
    let (mut got, mut room) = (Vec::new(), Vec::new());
    while got.len() < data.len() {
        receive(&mut b, &mut room);
        got.extend_from_slice(&room);
    }
    assert!(got == data);
}

#[test]
fn vsock_data_held_over_a_pause_of_its_sender_arrives() {
    let rig = Rig::new();
    let mut a = rig.raw("red", 3);
    let mut b = rig.port_with("red", 4, small());
    a.send(&packet((3, 1), (4, 2), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    send(&mut b, &packet((4, 2), (3, 1), Op::Response, 0), &[]);
    wait(|| a.receive().is_some(), || "no response".into());
    let data = pattern(7, 60 * 4096);
    let header = packet((3, 1), (4, 2), Op::Data, 4096);
    let (mut got, mut room) = (Vec::new(), Vec::new());
    for (n, part) in (0..).zip(data.chunks(4096)) {
        let span = raw::data_at(n % 30);
        wait(|| a.outstanding() < 25, || format!("packet {n} finds no room"));
        a.map.write(span.addr, part).unwrap();
        a.send(&header, &[span]);
        if n % 20 == 19 {
            // All packets are processed; some of them wait in their descriptors.
            let taken = || rig.counter("red", 3, "transmit_packets_total");
            wait(|| taken() == n + 2, || "not all is taken".into());
            assert!(a.outstanding() > 0);
            let at = a.pause();
            assert_eq!(a.outstanding(), 0, "a stopped ring has all its descriptors back");
            // The descriptors belong to the guest again: it may overwrite the data.
            rig.view("red", 3);
            for n in 0..30 {
                a.map.write(raw::data_at(n).addr, &[0; 4096]).unwrap();
            }
            a.resume(at);
            while got.len() < (n as usize - 9) * 4096 {
                receive(&mut b, &mut room);
                got.extend_from_slice(&room);
            }
        }
    }
    while got.len() < data.len() {
        receive(&mut b, &mut room);
        got.extend_from_slice(&room);
    }
    assert!(got == data);
}
