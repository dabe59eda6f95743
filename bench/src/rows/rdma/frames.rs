//! Ethernet frames of 64 bytes from adapter to adapter, through rings as those of mlx5e.
//!
//! | cache lines between the cores for each frame | adapter | virtio, packed |
//! |---|---|---|
//! | send entry or descriptor | 1 | 1/4 |
//! | payload with header | 1 | 2 |
//! | receive entry or descriptor | 0: the driver leaves entries as they are | 1/4 |
//! | receive buffer | 1 | 2 |
//! | completion | 1 | 0: in the descriptors |
//! | completion of the sender, records | 4/32 | 0 |
//! | sum | 4.1 | 4.5 |
//!
//! The lines are as many as virtio's. The adapter's frame costs more instructions: the entry and
//! the completion are big-endian structures, checksums are computed for the completion, and the
//! frame passes the flow tables.
//!
//! One thread drives both adapters; the rig's dispatcher forwards on the other core. A lost frame
//! ends the figure with an error after 3 s without a frame (10 times `LOST` of `ethernet`). A
//! register message of the data path fails it at its end. The content is not checked.

use std::time::{Duration, Instant};

use causeway_mlx5_driver::{
    Driver, DriverError, EthernetInterface, EthernetOptions, FrameTemplate, VfioBar,
};

use super::adapters::{MEMORY, failed};
use crate::effort::Effort;
use crate::rig::{Rig, hca_mac};
use crate::row::{Against, Guest, Plan};
use crate::rows::ethernet::{LOST, frame, packed_mpps};

/// Most frames of a burst; the last completes.
const BURST: u64 = 32;
/// Most frames in flight.
const WINDOW: u64 = 192;
/// Length of a frame.
const LEN: usize = 64;
const HEAD: usize = 18;
/// Payloads that the driver writes in turn: more than frames in flight.
const SLOTS: u64 = 256;
/// The peer's name.
const VIRTIO: &str = "ours, virtio, packed ring";

/// An adapter with its interface.
struct Station {
    bar: VfioBar,
    driver: Driver,
    interface: EthernetInterface,
}

impl Station {
    fn up(rig: &Rig, number: u8) -> Result<Self, DriverError> {
        let (mut bar, mut driver) = VfioBar::start(&rig.idle_hca(number), MEMORY)?;
        let options = EthernetOptions::default();
        let interface = EthernetInterface::up(&mut driver, &mut bar, options)?;
        Ok(Self { bar, driver, interface })
    }
}

/// Sends `total` frames. Returns millions per second that arrived; none is lost.
fn carry(
    from: &mut Station,
    to: &mut Station,
    (template, payload): (&FrameTemplate, u64),
    total: u64,
) -> Result<f64, String> {
    let (mut sent, mut got) = (0_u64, 0_u64);
    let (since, mut last) = (Instant::now(), Instant::now());
    let mut vain = 0_u64;
    while got < total {
        let mut queued = 0;
        while queued < BURST && sent < total && sent < got + WINDOW && from.interface.room() > 0 {
            queued += 1;
            sent += 1;
            let is_last = queued == BURST || sent == total || sent == got + WINDOW;
            // Each entry of the ring has its payload, which the driver writes for each frame.
            let at = payload + sent % SLOTS * 64;
            from.driver.memory().write(at, &[sent as u8; LEN - HEAD]).map_err(failed)?;
            from.interface.stage(&from.driver, template, at, is_last).map_err(failed)?;
        }
        if queued > 0 {
            from.interface.publish(&from.driver).map_err(failed)?;
        }
        from.interface.reclaim(&from.driver).map_err(failed)?;
        let count = to.interface.discard(&to.driver, WINDOW as u32).map_err(failed)?;
        got += u64::from(count);
        vain = if count > 0 { 0 } else { vain + 1 };
        if vain == 1 {
            last = Instant::now();
        } else if vain > 1 && vain.is_multiple_of(1024) && last.elapsed() > 10 * LOST {
            return Err(format!("frames were lost: {sent} sent, {got} received"));
        }
    }
    Ok(total as f64 / since.elapsed().as_secs_f64() / 1e6)
}

fn mpps(effort: &Effort) -> Result<Vec<f64>, String> {
    let total = effort.rounds(3_000_000);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let mut from = Station::up(&rig, 1).map_err(failed)?;
        let mut to = Station::up(&rig, 2).map_err(failed)?;
        let bytes = frame(hca_mac(1), hca_mac(2), LEN);
        let (head, rest) = bytes.split_first_chunk::<HEAD>().expect("a frame has a header");
        let at = from.driver.allocate(SLOTS * 64).map_err(failed)?;
        let template = from.interface.template(head, rest.len() as u32).map_err(failed)?;
        let accesses = |from: &Station, to: &Station| {
            from.bar.register_accesses() + to.bar.register_accesses()
        };
        let before = accesses(&from, &to);
        carry(&mut from, &mut to, (&template, at), total / 10)?;
        let mpps = carry(&mut from, &mut to, (&template, at), total)?;
        match accesses(&from, &to) == before {
            true => Ok(mpps),
            false => Err("the data path sent register messages".into()),
        }
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let plan = Plan::new("RDMA adapters, Ethernet frames, 64 B", "Mpps", Guest::Native, mpps);
    vec![plan.beside(VIRTIO, |e| packed_mpps(e, LEN)).aim(Against::Peer(VIRTIO), 0.5)]
}
