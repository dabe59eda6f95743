//! Kills causewayd while a vfio-user frontend uses an adapter: the frontend stays connected, is
//! answered meanwhile, and finds an internal error in the registers, from which a driver recovers.

use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Dir;
use crate::common::daemon_process::{self, DaemonProcess, await_state};
use causeway_attach::native::VfioUserClient;
use causeway_attach::vfio_user::message::DmaMap;

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");
const LIMIT: Duration = Duration::from_secs(30);

/// Returns a register of an adapter's initialisation segment.
fn register(adapter: &mut VfioUserClient, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    adapter.read(0, offset, &mut bytes).unwrap();
    u32::from_be_bytes(bytes)
}

/// Writes a register of an adapter's initialisation segment, as QEMU does: without a reply.
fn set_register(adapter: &mut VfioUserClient, offset: u64, value: u32) {
    adapter.write_posted(0, offset, &value.to_be_bytes()).unwrap();
}

/// Runs the command ENABLE_HCA by the command queue in the guest's first page.
fn enable(adapter: &mut VfioUserClient, memory: &std::os::fd::OwnedFd) {
    let mut entry = [0; 64];
    entry[0] = 7;
    entry[7] = 16;
    entry[16..18].copy_from_slice(&0x104_u16.to_be_bytes());
    entry[0x3b] = 16;
    // The function owns the entry until it has run the command.
    entry[0x3f] = 1;
    rustix::io::pwrite(memory, &entry, 0).unwrap();
    set_register(adapter, 0x18, 1);
    let since = Instant::now();
    while entry[0x3f] & 1 != 0 {
        assert!(since.elapsed() < LIMIT, "the command did not run");
        thread::sleep(Duration::from_millis(1));
        rustix::io::pread(memory, &mut entry, 0).unwrap();
    }
    assert_eq!(entry[0x20], 0, "status of the command");
}

/// The state of the function's interface: 0 works, 1 is disabled.
fn interface_state(adapter: &mut VfioUserClient) -> u32 {
    register(adapter, 0x14) >> 8 & 7
}

#[test]
fn restart_keeps_the_frontend_of_an_adapter() {
    let dir = Dir::new();
    let port = "[[port]]\nname = \"a-hca\"\ngroup = \"blue\"\nkind = \"hca\"\n";
    let file = daemon_process::config(&dir, "needed", port);
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let mut adapter = VfioUserClient::connect(&dir.file("a-hca.sock")).unwrap();
    let memory = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
    let map = DmaMap { flags: 3, offset: 0, address: 0x10_0000, size: 1 << 20 };
    adapter.map(&map, Some(memory.as_fd())).unwrap();
    for round in 0..3 {
        // A driver loads: the queue's address enables the interface.
        set_register(&mut adapter, 0x10, 0);
        set_register(&mut adapter, 0x14, 0x10_0000);
        assert_eq!(interface_state(&mut adapter), 0, "round {round}");
        enable(&mut adapter, &memory);
        let firmware = register(&mut adapter, 0);
        life.kill();
        assert_eq!(register(&mut adapter, 0), firmware, "round {round}");
        assert_eq!(interface_state(&mut adapter), 0, "the last value");
        life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
        let since = Instant::now();
        while interface_state(&mut adapter) != 1 {
            assert!(since.elapsed() < LIMIT, "round {round}: no internal error");
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(register(&mut adapter, 0x23c) >> 16 & 0xff, 1, "the health syndrome");
        await_state(&dir, "a-hca", "connected");
    }
    // A reset by the driver leaves nothing to recover.
    adapter.reset().unwrap();
    life.kill();
    let left = dir.file("held/0123456789abcdef.hca");
    std::fs::write(&left, b"the record of a port that was removed").unwrap();
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    assert!(!left.exists(), "a file without a port");
    await_state(&dir, "a-hca", "connected");
    thread::sleep(Duration::from_millis(50));
    assert_eq!(interface_state(&mut adapter), 0);
    life.release(&dir);
}
