//! Attacks of a port, step by step, during which victims are measured.
//!
//! `contain` creates an attacker by one of [`ALL`] on a port of the rig and runs its steps in a
//! thread of its own, while other ports are measured (`isolation` measures `tenants`). The
//! attackers use the vhost-user protocol or the native frontend as a hostile guest or VMM could. A
//! step that no longer reaches the daemon returns false and is repeated. Attackers connect again if
//! the daemon closes the connection, except the flood of forged frames, which stays attached. An
//! attacker that cannot attach is an error. No attack leaves the machine.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_attach::native::{Client, NET_HEADER_BYTES, NetPort};
use causeway_attach::vhost_user::FrontendReq;
use causeway_attach::vhost_user::message::{RegionSpec, RingAddresses, emit_table};
use rustix::event::{EventfdFlags, eventfd};

use super::ethernet::{frame, options};
use crate::rig::{Rig, mac};

/// A group without victims.
pub const OTHERS: &str = "others";
const ATTACKER: u8 = 9;

/// Runs one step of an attack; returns whether it reached the daemon.
pub type Attack = Box<dyn FnMut() -> bool + Send>;
/// Creates the attacker in a group.
pub type Make = fn(&Rig, &str) -> Result<Attack, String>;

/// All attacks, with the neighbour's activity.
pub const ALL: [(&str, Make); 6] = [
    ("reconnects with broken set-up", broken_setup),
    ("floods forged frames", forged),
    ("submits malformed chains", malformed),
    ("rings without end", doorbells),
    ("changes its memory table without end", memory_tables),
    ("resets its queues without end", resets),
];

/// Adds the attacker's port; returns its socket.
fn port(rig: &Rig, group: &str) -> PathBuf {
    rig.idle_net(group, ATTACKER, false)
}

fn bell() -> Result<OwnedFd, String> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| e.to_string())
}

/// Connects, sends an invalid set-up, and disconnects.
fn broken_setup(rig: &Rig, group: &str) -> Result<Attack, String> {
    let path = port(rig, group);
    Ok(Box::new(move || {
        let Ok(mut client) = Client::connect(&path) else { return false };
        // The daemon must refuse it.
        client.set_features(u64::MAX).is_err() | client.stop_queue(77).is_err()
    }))
}

/// Sends frames with a victim's address as source as fast as possible, up to 64 a step.
fn forged(rig: &Rig, group: &str) -> Result<Attack, String> {
    let mut port: NetPort = rig.net_in(group, ATTACKER, false, options(64));
    let forged = frame(mac(1), mac(2), 64);
    Ok(Box::new(move || {
        let more = || port.queue(0, &[0; NET_HEADER_BYTES], &forged).unwrap_or(false);
        let queued = std::iter::repeat_with(more).take(64).take_while(|queued| *queued).count();
        port.flush(0).is_ok() && queued > 0
    }))
}

/// User address of the attacker's memory, as reported to the daemon.
const BASE: u64 = 0x10_0000;
const LEN: u64 = 0x1_0000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;
const SIZE: u16 = 256;
const VERSION_1: u64 = 1 << 32;
const REGION: RegionSpec = RegionSpec { guest: BASE, len: LEN, user: BASE, offset: 0 };
/// The transmit queue.
const RING: RingAddresses = RingAddresses {
    index: 1,
    flags: 0,
    descriptors: BASE,
    used: BASE + USED,
    available: BASE + AVAILABLE,
    log: 0,
};

/// Returns a memory file with a split ring; its only chain points outside of it.
fn malformed_memory() -> Result<std::fs::File, String> {
    let fd = rustix::fs::memfd_create("attacker", rustix::fs::MemfdFlags::CLOEXEC);
    let file = std::fs::File::from(fd.map_err(|e| e.to_string())?);
    let descriptor = [&(BASE + 2 * LEN).to_le_bytes()[..], &64_u32.to_le_bytes(), &[0; 4]].concat();
    let written = file
        .set_len(LEN)
        .and_then(|()| file.write_all_at(&descriptor, 0))
        .and_then(|()| file.write_all_at(&1_u16.to_le_bytes(), AVAILABLE + 2));
    written.map(|()| file).map_err(|e| e.to_string())
}

/// Starts the transmit queue over the malformed chain, rings once, and waits until the daemon
/// closes the connection, at most 100 ms. Returns whether it did.
fn submit(path: &Path, memory: &std::fs::File, bell: &OwnedFd) -> Option<()> {
    let client = running(path, memory, bell)?;
    rustix::io::write(bell, &1_u64.to_ne_bytes()).ok()?;
    let since = std::time::Instant::now();
    while !client.is_gone() && since.elapsed() < Duration::from_millis(100) {
        std::hint::spin_loop();
    }
    client.is_gone().then_some(())
}

/// Submits a chain that points outside of its memory, repeatedly.
fn malformed(rig: &Rig, group: &str) -> Result<Attack, String> {
    let (path, memory, bell) = (port(rig, group), malformed_memory()?, bell()?);
    let name = format!("n{ATTACKER}");
    submit(&path, &memory, &bell).ok_or("the attacker cannot attach its port")?;
    if rig.view(&name).faults_total == 0 {
        return Err("the daemon did not detect the malformed chain".into());
    }
    Ok(Box::new(move || submit(&path, &memory, &bell).is_some()))
}

/// Attaches, and starts the transmit queue in `memory`.
fn running(path: &Path, memory: &std::fs::File, bell: &OwnedFd) -> Option<Client> {
    let mut client = Client::connect(path).ok()?;
    client.set_features(VERSION_1).ok()?;
    client.grant(&REGION, memory.as_fd()).ok()?;
    client.start_queue(SIZE, 0, &RING, bell.as_fd(), bell.as_fd()).ok()?;
    Some(client)
}

/// Runs steps of an attack from a port with a running queue; reconnects when the port is closed.
fn while_running(
    rig: &Rig,
    group: &str,
    mut step: impl FnMut(&mut Client, &std::fs::File, &OwnedFd) -> bool + Send + 'static,
) -> Result<Attack, String> {
    let (path, memory, bell) = (port(rig, group), malformed_memory()?, bell()?);
    // The available ring is empty.
    memory.write_all_at(&[0; 2], AVAILABLE + 2).map_err(|e| e.to_string())?;
    let client = running(&path, &memory, &bell).ok_or("the attacker cannot attach its port")?;
    let mut client = Some(client);
    Ok(Box::new(move || {
        let Some(there) = &mut client else {
            client = running(&path, &memory, &bell);
            return false;
        };
        let done = step(there, &memory, &bell);
        if !done {
            client = None;
        }
        done
    }))
}

/// Rings the doorbell of an empty queue.
fn doorbells(rig: &Rig, group: &str) -> Result<Attack, String> {
    while_running(rig, group, |client, _, bell| {
        let ring = |_| rustix::io::write(bell, &1_u64.to_ne_bytes()).is_ok();
        (0..64).all(ring) && !client.is_gone()
    })
}

/// Sends its memory table repeatedly, while its queue runs.
fn memory_tables(rig: &Rig, group: &str) -> Result<Attack, String> {
    while_running(rig, group, |client, memory, _| {
        client.tell(FrontendReq::SET_MEM_TABLE, &emit_table(&[REGION]), &[memory.as_fd()]).is_ok()
    })
}

/// Stops and starts its queue.
fn resets(rig: &Rig, group: &str) -> Result<Attack, String> {
    while_running(rig, group, |client, _, bell| {
        client.stop_queue(RING.index).is_ok()
            && client.start_queue(SIZE, 0, &RING, bell.as_fd(), bell.as_fd()).is_ok()
    })
}
