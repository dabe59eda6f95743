//! Bare frames over a veth pair between two namespaces: what `AF_PACKET` itself takes.

use std::time::Instant;

use causeway_memory::packet::{FINISH_BYTES, PacketSocket};
use rustix::event::{PollFd, PollFlags, poll};

use super::underlay::Underlay;
use crate::effort::Effort;
use crate::pin::{CLIENT, pin};

/// EtherType for experiments, of IEEE 802.
const ETHERTYPE: u16 = 0x88b5;
/// Length of the shortest frame, with the bytes before it that say how it is to be finished.
const LEN: usize = FINISH_BYTES + 60;

fn frame() -> [u8; LEN] {
    let mut frame = [0; LEN];
    let (to, kind) = (FINISH_BYTES, FINISH_BYTES + 12);
    frame[to..to + 6].fill(0xff);
    frame[to + 6] = 2;
    frame[kind..kind + 2].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame
}

/// Waits for one frame, looking without end or asleep.
fn receive(socket: &PacketSocket, spin: bool) -> std::io::Result<()> {
    let mut room = [0; 256];
    loop {
        match socket.receive(&mut room) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if spin => {}
            Err(_) => {
                poll(&mut [PollFd::new(socket, PollFlags::IN)], None)?;
            }
        }
    }
}

/// Round trips of the shortest frame: microseconds. Both ends spin if `spin`, else they sleep, on
/// one core: whoever waits leaves it to the other.
pub fn frame_round_us(effort: &Effort, spin: bool) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    let rounds = effort.rounds(30_000);
    let far_core = if spin { crate::pin::SERVER } else { CLIENT };
    let open = || PacketSocket::open_for("eth0", ETHERTYPE, None).map_err(std::io::Error::other);
    let send = |socket: &PacketSocket| rustix::io::write(socket, &frame()).map(drop);
    effort.each(|| {
        let echo = || {
            pin(far_core);
            let socket = open()?;
            for _ in 0..=rounds {
                receive(&socket, spin)?;
                send(&socket)?;
            }
            Ok(())
        };
        let mut round_us = 0.0;
        let ask = || {
            pin(CLIENT);
            let socket = open()?;
            let mut since = Instant::now();
            for round in 0..=rounds {
                if round == 1 {
                    since = Instant::now();
                }
                send(&socket)?;
                receive(&socket, spin)?;
            }
            round_us = since.elapsed().as_secs_f64() * 1e6 / rounds as f64;
            Ok(())
        };
        underlay.both(ask, echo)?;
        Ok(round_us)
    })
}
