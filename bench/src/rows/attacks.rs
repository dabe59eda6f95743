//! What a port attacks with, step by step, while victims are measured.

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

/// A group in which no victim is.
pub const OTHERS: &str = "others";
const ATTACKER: u8 = 9;

/// Does one step of an attack; says whether it reached the daemon.
pub type Attack = Box<dyn FnMut() -> bool + Send>;
/// Makes the attacker in a group.
pub type Make = fn(&Rig, &str) -> Result<Attack, String>;

/// All of them, and what their neighbour does.
pub const ALL: [(&str, Make); 6] = [
    ("reconnects with broken set-up", broken_setup),
    ("floods forged frames", forged),
    ("submits malformed chains", malformed),
    ("rings without end", doorbells),
    ("changes its memory table without end", memory_tables),
    ("resets its queues without end", resets),
];

/// The attacker's port, to be attached to.
fn port(rig: &Rig, group: &str) -> PathBuf {
    rig.idle_net(group, ATTACKER, false)
}

fn bell() -> Result<OwnedFd, String> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| e.to_string())
}

/// Connects, sets up what makes no sense, and goes.
fn broken_setup(rig: &Rig, group: &str) -> Result<Attack, String> {
    let path = port(rig, group);
    Ok(Box::new(move || {
        let Ok(mut client) = Client::connect(&path) else { return false };
        // Refused, as it should be.
        client.set_features(u64::MAX).is_err() | client.stop_queue(77).is_err()
    }))
}

/// Sends frames under another's address as fast as it can.
fn forged(rig: &Rig, group: &str) -> Result<Attack, String> {
    let mut port: NetPort = rig.net_in(group, ATTACKER, false, options(64));
    let forged = frame(mac(1), mac(2), 64);
    Ok(Box::new(move || {
        let more = || port.queue(0, &[0; NET_HEADER_BYTES], &forged).unwrap_or(false);
        let queued = std::iter::repeat_with(more).take(64).take_while(|queued| *queued).count();
        port.flush(0).is_ok() && queued > 0
    }))
}

/// Where the attacker's memory lies for the daemon.
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

/// A memory file with a split ring whose one chain points outside of it.
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

/// Starts the transmit queue over the malformed chain, rings once, and goes when it is closed.
fn submit(path: &Path, memory: &std::fs::File, bell: &OwnedFd) -> Option<()> {
    let client = running(path, memory, bell)?;
    rustix::io::write(bell, &1_u64.to_ne_bytes()).ok()?;
    let since = std::time::Instant::now();
    while !client.is_gone() && since.elapsed() < Duration::from_millis(100) {
        std::hint::spin_loop();
    }
    client.is_gone().then_some(())
}

/// Submits a chain that points outside of its memory, again and again.
fn malformed(rig: &Rig, group: &str) -> Result<Attack, String> {
    let (path, memory, bell) = (port(rig, group), malformed_memory()?, bell()?);
    let name = format!("n{ATTACKER}");
    submit(&path, &memory, &bell).ok_or("the attack cannot be made")?;
    if rig.view(&name).faults_total == 0 {
        return Err("the malformed chain was not found out".into());
    }
    Ok(Box::new(move || submit(&path, &memory, &bell).is_some()))
}

/// Attaches with a transmit queue that has nothing in it.
fn running(path: &Path, memory: &std::fs::File, bell: &OwnedFd) -> Option<Client> {
    let mut client = Client::connect(path).ok()?;
    client.set_features(VERSION_1).ok()?;
    client.grant(&REGION, memory.as_fd()).ok()?;
    client.start_queue(SIZE, 0, &RING, bell.as_fd(), bell.as_fd()).ok()?;
    Some(client)
}

/// Steps of an attack from a port whose queue runs; one that is closed for it comes again.
fn while_running(
    rig: &Rig,
    group: &str,
    mut step: impl FnMut(&mut Client, &std::fs::File, &OwnedFd) -> bool + Send + 'static,
) -> Result<Attack, String> {
    let (path, memory, bell) = (port(rig, group), malformed_memory()?, bell()?);
    // Nothing is available.
    memory.write_all_at(&[0; 2], AVAILABLE + 2).map_err(|e| e.to_string())?;
    let client = running(&path, &memory, &bell).ok_or("the attack cannot be made")?;
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

/// Rings for nothing.
fn doorbells(rig: &Rig, group: &str) -> Result<Attack, String> {
    while_running(rig, group, |client, _, bell| {
        let ring = |_| rustix::io::write(bell, &1_u64.to_ne_bytes()).is_ok();
        (0..64).all(ring) && !client.is_gone()
    })
}

/// Says again and again where its memory is, while its queue runs.
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
