//! Ethernet frames of adapters over a link: two causewayds with an adapter each, and a driver of each in
//! this process.

use std::time::Instant;

use crate::adapters::{MEMORY, PATIENCE};
use crate::common::Dir;
use crate::common::daemon_process::{DaemonProcess, config};
use causeway_mlx5_driver::{Driver, EthernetInterface, EthernetOptions, VfioBar};

/// Bytes of a frame that lie in its send entry.
const HEAD_BYTES: usize = 18;
/// Bytes of payload in each frame, on a link with room for 1,500.
const PAYLOAD: u32 = 1400;

/// A host with one adapter and a link to the other host.
struct Host {
    number: u8,
    interface: EthernetInterface,
    driver: Driver,
    _bar: VfioBar,
    payload: u64,
    _daemon: DaemonProcess,
    _dir: Dir,
}

fn mac(host: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 2, host]
}

impl Host {
    fn new(number: u8, peer: u8) -> Self {
        let dir = Dir::new();
        let sections = format!(
            "[[port]]\nname = \"hca\"\ngroup = \"blue\"\nkind = \"hca\"\n\
             mac = \"52:54:00:00:02:0{number}\"\n\
             [[link]]\nname = \"far\"\ngroup = \"blue\"\nkind = \"vxlan\"\nvni = 7\n\
             local = \"127.0.0.7{number}:4793\"\nremote = \"127.0.0.7{peer}:4793\"\n"
        );
        let file = config(&dir, "none", &sections);
        let daemon = DaemonProcess::start(env!("CARGO_BIN_EXE_causewayd"), &file).ready(&dir);
        let (mut bar, mut driver) = VfioBar::start(&dir.file("hca.sock"), MEMORY).unwrap();
        let options = EthernetOptions::default();
        let interface = EthernetInterface::up(&mut driver, &mut bar, options).unwrap();
        let payload = driver.allocate(4096).unwrap();
        driver.memory().write(payload, &[number; PAYLOAD as usize]).unwrap();
        Self { number, interface, driver, _bar: bar, payload, _daemon: daemon, _dir: dir }
    }

    /// Sends a frame with the number `count`.
    fn send(&mut self, to: [u8; 6], count: u8) {
        self.interface.reclaim(&self.driver).unwrap();
        let head = [&to[..], &mac(self.number), &[0x88, 0xb5], &[count; 4]].concat();
        let head: [u8; HEAD_BYTES] = head.try_into().unwrap();
        let template = self.interface.template(&head, PAYLOAD).unwrap();
        self.interface.stage(&self.driver, &template, self.payload, true).unwrap();
        self.interface.publish(&self.driver).unwrap();
    }

    /// Waits for the next frame of the peer, and checks its bytes.
    fn expect(&mut self, from: u8, to: [u8; 6], count: u8) {
        let (start, mut frame) = (Instant::now(), Vec::new());
        loop {
            let got = self.interface.receive(&self.driver, &mut frame).unwrap();
            // Other frames are those of the daemons.
            if got.is_some() && frame[12..14] == [0x88, 0xb5] {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "frame {count} of host {from} is lost");
            std::thread::yield_now();
        }
        let head = [&to[..], &mac(from), &[0x88, 0xb5], &[count; 4]].concat();
        let expected = [&head[..], &[from; PAYLOAD as usize]].concat();
        assert!(frame == expected, "frame {count} of host {from} has other bytes");
    }
}

#[test]
fn adapter_frames_cross_a_link_in_both_directions() {
    let (mut a, mut b) = (Host::new(1, 2), Host::new(2, 1));
    // Without a learned address, and to all; then by learned addresses.
    for (count, to_all) in [(1, false), (2, true), (3, false), (4, false)] {
        let to = |host| if to_all { [0xff; 6] } else { mac(host) };
        a.send(to(2), count);
        b.expect(1, to(2), count);
        b.send(to(1), count);
        a.expect(2, to(1), count);
    }
}
