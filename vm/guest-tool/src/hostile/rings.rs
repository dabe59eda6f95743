//! Violations that apply to any device: addresses, contents and timing of rings.
//!
//! Most cases start the device, break one rule of its transmit queue, and ring the doorbell. A case
//! awaits resets of the device only, and judges nothing: an error means that the guest could not
//! commit the violation. One case needs the physical address map of the guest (`/proc/iomem`), and
//! so root. A name that is no case of this module is `None`; `super` then asks the module of the
//! device. `vm/tests/hostile.rs` runs all cases with a network device, and a few with a socket
//! device.

use super::device::{Device, INDIRECT, Layout, NEXT, RUNNING, SIZE, WRITE, descriptor};
use super::pci::Part;
use std::fs;
use std::io;

/// Transmit queue of the network and the socket device.
const TX: u16 = 1;
/// Buffer page for data, and buffer page for tables.
const DATA: usize = 30;
const TABLE: usize = 31;
/// A physical address without memory on any test machine.
const HOLE: u64 = 0x3f_ffff_0000;

/// Runs case `name`; `None` if it is no case of this module.
pub fn case(device: &mut Device, features: u64, name: &str) -> Option<io::Result<()>> {
    Some(match name {
        "none" => Ok(()),
        "ring_in_a_hole" => placed(device, features, |l| Layout { desc: HOLE, ..l }),
        "used_ring_in_a_hole" => placed(device, features, |l| Layout { used: HOLE, ..l }),
        "ring_over_the_end_of_memory" => memory_end()
            .and_then(|end| placed(device, features, |l| Layout { used: end - 16, ..l })),
        "ring_address_wraps" => placed(device, features, |l| Layout { avail: !0xf, ..l }),
        "ring_out_of_line" => placed(device, features, |l| Layout { desc: l.desc + 1, ..l }),
        "used_ring_over_the_descriptors" => {
            placed(device, features, |l| Layout { used: l.desc, ..l })
        }
        "available_ring_over_the_used_ring" => {
            placed(device, features, |l| Layout { avail: l.used, ..l })
        }
        "queue_size_zero" => placed(device, features, |l| Layout { size: 0, ..l }),
        "queue_size_odd" => placed(device, features, |l| Layout { size: 3, ..l }),
        "queue_size_too_large" => placed(device, features, |l| Layout { size: 0x8000, ..l }),
        "queue_enabled_twice" => enabled_twice(device, features),
        "queue_moved_while_it_runs" => moved(device, features),
        "one_queue_alone" => alone(device, features),
        "driver_ok_without_features" => without_features(device),
        "driver_ok_without_queues" => device.begin(features).and_then(|()| device.status(RUNNING)),
        "features_never_offered" => device.start(u64::MAX),
        "memory_taken_away" => memory_taken(device, features),
        "reset_in_flight" => reset_in_flight(device, features),
        "reset_storm" => (0..30).try_for_each(|_| device.start(features)),
        "doorbell_storm" => doorbell_storm(device, features),
        "doorbells_of_no_queue" => odd_doorbells(device, features),
        "index_jump" => tx(device, features, |d| d.set_available(TX, 1000)),
        "head_out_of_range" => tx(device, features, |d| d.offer(TX, SIZE + 7)),
        "head_twice" => tx(device, features, |d| (0..40).try_for_each(|_| d.offer(TX, 0))),
        "cycle" => chain(device, features, |at, _| (at, 16, NEXT, 0)),
        "next_out_of_range" => chain(device, features, |at, _| (at, 16, NEXT, 999)),
        "chain_in_a_hole" => chain(device, features, |_, _| (HOLE, 100, 0, 0)),
        "address_wraps" => chain(device, features, |_, _| (u64::MAX - 10, 100, 0, 0)),
        "length_of_four_gigabytes" => chain(device, features, |at, _| (at, u32::MAX, 0, 0)),
        "write_only" => chain(device, features, |at, _| (at, 100, WRITE, 0)),
        "no_bytes" => chain(device, features, |at, _| (at, 0, 0, 0)),
        "readable_after_writable" => order(device, features),
        "table_within_table" => table(device, features, 32, |_, t| (t, 32, INDIRECT, 0)),
        "table_that_is_a_cycle" => table(device, features, 16, |at, _| (at, 16, NEXT, 0)),
        "table_too_long" => table(device, features, 16 * 256, |at, n| (at, n as u32 % 5, NEXT, 1)),
        "table_of_odd_length" => table(device, features, 17, |at, _| (at, 16, 0, 0)),
        "table_of_no_length" => table(device, features, 0, |at, _| (at, 16, 0, 0)),
        "table_in_a_hole" => chain(device, features, |_, _| (HOLE, 64, INDIRECT, 0)),
        "rewritten_in_flight" => rewritten(device, features),
        _ => return None,
    })
}

/// Returns the first address after the guest's memory.
fn memory_end() -> io::Result<u64> {
    const MIB: u64 = 1 << 20;
    let table = fs::read_to_string("/proc/iomem")?;
    let ends = table.lines().filter(|l| l.ends_with("System RAM")).filter_map(|l| {
        let end = l.trim().split(' ').next()?.split('-').nth(1)?;
        u64::from_str_radix(end, 16).ok()
    });
    let last = ends.max().filter(|end| *end > MIB);
    let last =
        last.ok_or_else(|| io::Error::other("/proc/iomem hides the physical addresses of memory"))?;
    Ok((last + 1).next_multiple_of(MIB))
}

/// Starts the device with a changed layout of the transmit queue.
fn placed(device: &mut Device, features: u64, how: impl Fn(Layout) -> Layout) -> io::Result<()> {
    device.begin(features)?;
    device.enable(0, device.layout(0))?;
    device.enable(TX, how(device.layout(TX)))?;
    device.describe(TX, 0, (device.buffer(DATA), 60), 0, 0)?;
    device.offer(TX, 0)?;
    device.status(RUNNING)?;
    device.ring(TX)
}

/// Starts the device correctly, applies `what` to the transmit ring, and rings its doorbell.
fn tx(
    device: &mut Device,
    features: u64,
    what: impl FnOnce(&mut Device) -> io::Result<()>,
) -> io::Result<()> {
    device.start(features)?;
    device.describe(TX, 0, (device.buffer(DATA), 60), 0, 0)?;
    what(device)?;
    device.ring(TX)
}

/// Sends a chain. `what` derives its first descriptor from the addresses of data and table:
/// address, length, flags, next.
fn chain(
    device: &mut Device,
    features: u64,
    what: impl FnOnce(u64, u64) -> (u64, u32, u16, u16),
) -> io::Result<()> {
    let (addr, len, flags, next) = what(device.buffer(DATA), device.buffer(TABLE));
    tx(device, features, |d| {
        d.describe(TX, 0, (addr, len), flags, next)?;
        d.offer(TX, 0)
    })
}

/// Sends a chain of one indirect table of `len` bytes. `what` derives every entry from the
/// addresses of data and table.
fn table(
    device: &mut Device,
    features: u64,
    len: u32,
    what: impl Fn(u64, u64) -> (u64, u32, u16, u16),
) -> io::Result<()> {
    let (data, table) = (device.buffer(DATA), device.buffer(TABLE));
    let (addr, bytes, flags, next) = what(data, table);
    for n in 0..256 {
        device.fill(TABLE, 16 * n, &descriptor(addr, bytes, flags, next))?;
    }
    chain(device, features, |_, table| (table, len, INDIRECT, 0))
}

fn order(device: &mut Device, features: u64) -> io::Result<()> {
    let at = device.buffer(DATA);
    tx(device, features, |d| {
        d.describe(TX, 0, (at, 16), WRITE | NEXT, 1)?;
        d.describe(TX, 1, (at, 60), 0, 0)?;
        d.offer(TX, 0)
    })
}

fn enabled_twice(device: &mut Device, features: u64) -> io::Result<()> {
    device.start(features)?;
    device.enable(TX, device.layout(TX))?;
    device.enable(0, device.layout(0))?;
    device.ring(TX)
}

fn moved(device: &mut Device, features: u64) -> io::Result<()> {
    device.start(features)?;
    let elsewhere = Layout { desc: HOLE, used: HOLE + 4096, ..device.layout(TX) };
    device.place(TX, elsewhere)?;
    device.enable(TX, elsewhere)?;
    device.ring(TX)
}

fn alone(device: &mut Device, features: u64) -> io::Result<()> {
    device.begin(features)?;
    device.enable(TX, device.layout(TX))?;
    device.describe(TX, 0, (device.buffer(DATA), 60), 0, 0)?;
    device.offer(TX, 0)?;
    device.status(RUNNING)?;
    device.ring(TX)
}

fn without_features(device: &mut Device) -> io::Result<()> {
    device.reset()?;
    device.clear()?;
    for queue in [0, TX] {
        device.enable(queue, device.layout(queue))?;
    }
    device.status(7)?;
    device.ring(TX)
}

/// Disables bus mastering: to the backend, the memory grant is revoked.
fn memory_taken(device: &mut Device, features: u64) -> io::Result<()> {
    device.start(features)?;
    device.describe(TX, 0, (device.buffer(DATA), 60), 0, 0)?;
    device.pci.master(false)?;
    device.offer(TX, 0)?;
    device.ring(TX)
}

fn reset_in_flight(device: &mut Device, features: u64) -> io::Result<()> {
    for _ in 0..20 {
        device.start(features)?;
        for head in 0..SIZE {
            device.describe(TX, head, (device.buffer(DATA), 4000), 0, 0)?;
            device.offer(TX, head)?;
        }
        device.ring(TX)?;
    }
    device.reset()
}

fn doorbell_storm(device: &mut Device, features: u64) -> io::Result<()> {
    device.start(features)?;
    for n in 0..20_000 {
        device.ring(n & 1)?;
    }
    Ok(())
}

fn odd_doorbells(device: &mut Device, features: u64) -> io::Result<()> {
    device.start(features)?;
    for queue in [2_u32, 3, 63, 64, 255] {
        let at = queue * device.pci.notify_step;
        // A device may refuse a write to a doorbell that it does not have.
        let _ = device.pci.write(Part::Notify, at, &u16::MAX.to_le_bytes());
    }
    device.ring(TX)
}

/// Changes descriptors and tables while the backend reads them.
fn rewritten(device: &mut Device, features: u64) -> io::Result<()> {
    device.start(features)?;
    let (data, table) = (device.buffer(DATA), device.buffer(TABLE));
    let mut dice = 1_u64;
    for _ in 0..300 {
        for head in 0..SIZE {
            device.offer(TX, head)?;
        }
        device.ring(TX)?;
        for _ in 0..40 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let bits = dice >> 20;
            let flags = [0, NEXT, INDIRECT, 0][(bits >> 8 & 3) as usize];
            let (addr, len) = if flags == INDIRECT { (table, 64) } else { (data, 60) };
            let index = bits as u16 % SIZE;
            device.describe(TX, index, (addr, len), flags, (bits >> 16) as u16 % SIZE)?;
            let entry = descriptor(data, 30, (bits >> 30 & 1) as u16, (bits >> 31 & 3) as u16);
            device.fill(TABLE, 16 * (bits >> 40 & 3), &entry)?;
        }
    }
    Ok(())
}
