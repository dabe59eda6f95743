//! Containment: what two ports of one group lose while a port of another group
//! attacks.
//!
//! The victims' rate is counted by the processor time of their own thread, which
//! polls: time in which the dispatcher serves the attacker is time in which they
//! poll in vain. So an attacker that shares their core, for want of a third one,
//! does not count as an attack by itself; in peace it only burns time.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_attach::native::{Client, NET_HEADER_BYTES, NetPort};
use causeway_attach::vhost_user::message::{RegionSpec, RingAddresses};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};

use super::ethernet::{Pair, frame, options};
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER, pin};
use crate::rig::{Rig, mac};
use crate::row::{Against, Guest, Plan};

const OTHERS: &str = "others";
const ATTACKER: u8 = 9;

/// Does one step of an attack.
type Attack = Box<dyn FnMut() + Send>;

/// Processor time of this thread, in seconds.
fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The core of attackers: a third one where there is one.
fn attackers_core() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 2 {
        (0..).find(|core| ![CLIENT, SERVER].contains(core)).unwrap_or(CLIENT)
    } else {
        CLIENT
    }
}

/// Frames between two changes from peace to attack or back, and how many of them do not count:
/// until the change has taken effect.
const PHASE: u64 = 250_000;
const SETTLE: u64 = 25_000;

/// The victims' rate of 64 B frames while `attack` goes on, as a share of their rate without. Both
/// are taken in turn, many times a run: a machine whose cores move changes either rate by more
/// than any attack.
fn share(
    effort: &Effort,
    make: &dyn Fn(&Rig, PathBuf) -> Result<Attack, String>,
) -> Result<Vec<f64>, String> {
    let rig = Rig::new(Duration::from_millis(100));
    rig.group(OTHERS);
    let frames = vec![frame(mac(1), mac(2), 64)];
    let mut pair = Pair::new(rig.net(1, options(64)), rig.net(2, options(64)), frames);
    let path = rig.idle_net(OTHERS, ATTACKER, false);
    let mut attack = make(&rig, path)?;
    let phases = (effort.rounds(20_000_000) / PHASE).max(4);
    let (stop, attacked) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(attackers_core());
            while !stop.load(Ordering::Relaxed) {
                if attacked.load(Ordering::Relaxed) {
                    attack();
                } else {
                    (0..1000).for_each(|_| std::hint::spin_loop());
                }
            }
        });
        let mut until = 0;
        let mut took = |frames: u64| {
            let since = thread_s();
            until += frames;
            while pair.got < until {
                pair.turn(32, until);
            }
            thread_s() - since
        };
        took(PHASE);
        let shares = effort.each(|| {
            let mut seconds = [0.0; 2];
            for phase in 0..phases {
                let now = phase % 2 == 1;
                attacked.store(now, Ordering::Relaxed);
                took(SETTLE);
                seconds[usize::from(now)] += took(PHASE - SETTLE);
            }
            let [alone, with] = seconds;
            Ok(alone / with)
        });
        stop.store(true, Ordering::Relaxed);
        shares
    })
}

/// Connects, sets up what makes no sense, and goes.
fn broken_setup(_: &Rig, path: PathBuf) -> Result<Attack, String> {
    Ok(Box::new(move || {
        let Ok(mut client) = Client::connect(&path) else { return };
        let _ = client.set_features(u64::MAX);
        let _ = client.stop_queue(77);
    }))
}

/// Sends frames under another's address as fast as it can.
fn forged(rig: &Rig, _: PathBuf) -> Result<Attack, String> {
    let mut port: NetPort = rig.net_in(OTHERS, ATTACKER + 1, false, options(64));
    let forged = frame(mac(1), mac(2), 64);
    Ok(Box::new(move || {
        for _ in 0..64 {
            if !port.queue(0, &[0; NET_HEADER_BYTES], &forged).unwrap_or(false) {
                break;
            }
        }
        let _ = port.flush(0);
    }))
}

/// Where the attacker's memory lies for the daemon.
const BASE: u64 = 0x10_0000;
const LEN: u64 = 0x1_0000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;
const SIZE: u16 = 256;
const VERSION_1: u64 = 1 << 32;

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
    let mut client = Client::connect(path).ok()?;
    client.set_features(VERSION_1).ok()?;
    let region = RegionSpec { guest: BASE, len: LEN, user: BASE, offset: 0 };
    client.grant(&region, memory.as_fd()).ok()?;
    let ring = RingAddresses {
        index: 1,
        flags: 0,
        descriptors: BASE,
        used: BASE + USED,
        available: BASE + AVAILABLE,
        log: 0,
    };
    client.start_queue(SIZE, 0, &ring, bell.as_fd(), bell.as_fd()).ok()?;
    rustix::io::write(bell, &1_u64.to_ne_bytes()).ok()?;
    let since = std::time::Instant::now();
    while !client.is_gone() && since.elapsed() < Duration::from_millis(100) {
        std::hint::spin_loop();
    }
    Some(())
}

/// Submits a chain that points outside of its memory, again and again.
fn malformed(rig: &Rig, path: PathBuf) -> Result<Attack, String> {
    let memory = malformed_memory()?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let bell = bell.map_err(|e| e.to_string())?;
    let name = format!("n{ATTACKER}");
    submit(&path, &memory, &bell).ok_or("the attack cannot be made")?;
    if rig.view(&name).faults_total == 0 {
        return Err("the malformed chain was not found out".into());
    }
    Ok(Box::new(move || {
        let _ = submit(&path, &memory, &bell);
    }))
}

type Make = fn(&Rig, PathBuf) -> Result<Attack, String>;

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let attacks: [(&str, Make); 3] = [
        ("reconnects with broken set-up", broken_setup),
        ("floods forged frames", forged),
        ("submits malformed chains", malformed),
    ];
    let plan = |(what, attack): (&str, Make)| {
        let name = format!("victims' 64 B frames while a neighbour {what}");
        Plan::new(name, "of peace", Guest::Native, move |e| share(e, &attack))
            .aim(Against::Figure, 0.95)
            .note(
                "A share of the victims' rate in peace, taken in turn with it in the same run; \
                 rates are by the processor time of the victims' own thread, which polls.",
            )
    };
    attacks.map(plan).into()
}
