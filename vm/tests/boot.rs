//! Guests without the daemon: boot, commands, restart, shutdown.

mod common;

use causeway_guest_tool::transport::Target;
use causeway_vm::{Bridge, Guest, GuestSpec, Machine, Nic, NicBackend, traffic};
use common::LIMIT;
use std::time::Duration;

#[test]
fn a_guest_boots_answers_and_restarts() {
    let machine = Machine::qemu().unwrap();
    let mut spec = GuestSpec::new("alone");
    spec.may_restart = true;
    let mut guest = Guest::boot_all(&machine, vec![spec]).unwrap().remove(0);
    assert_eq!(guest.hello().unwrap().kernel, machine.image.kernel.release);
    let ran = guest.run(&["sh", "-c", "echo $((6*7)); exit 4"], LIMIT).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.code), ("42\n", Some(4)));
    let slow = guest.run(&["sleep", "600"], Duration::from_millis(500)).unwrap();
    assert!(slow.timed_out);
    // The service and both kinds of socket, inside the guest alone.
    let stream = Target::Vsock(1, 7001);
    assert!(traffic::ping_pong(&guest, &stream, 4096, 10, LIMIT).is_ok());
    let sizes = [1, 63, 4096, 5000, 65_535];
    let messages = traffic::messages(&guest, &Target::SeqPacket(1, 7002), &sizes).unwrap();
    assert_eq!(messages.largest_bytes, 65_535);
    guest.run(&["touch", "/tmp/mark"], LIMIT).unwrap();
    guest.restart(causeway_vm::limits::BOOT).unwrap();
    assert_eq!(guest.run(&["test", "-e", "/tmp/mark"], LIMIT).unwrap().code, Some(1));
}

#[test]
fn guest_panic_is_reported_with_its_console() {
    let machine = Machine::qemu().unwrap();
    let specs = vec![GuestSpec::new("panics")];
    let guest = Guest::boot_all(&machine, specs).unwrap().remove(0);
    let why = guest.run(&["sh", "-c", "echo c >/proc/sysrq-trigger; sleep 60"], LIMIT).unwrap_err();
    assert!(why.to_string().contains("Kernel panic"), "{why}");
    assert!(why.to_string().contains("console of panics"), "{why}");
}

#[test]
fn guests_exchange_traffic_over_a_bridge() {
    let machine = Machine::qemu().unwrap();
    let bridge = match Bridge::new(2, 1500) {
        Ok(bridge) => bridge,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let spec = |i: usize| {
        let mut spec = GuestSpec::new(&format!("tap{i}")).nic(Nic {
            backend: NicBackend::Tap(format!("tap{i}")),
            mac: format!("52:54:00:78:00:{i:02x}"),
            address: format!("10.78.0.{}/24", i + 1),
            mtu: 1500,
        });
        spec.namespace_of = Some(bridge.holder());
        spec
    };
    let guests = Guest::boot_all(&machine, vec![spec(0), spec(1)]).unwrap();
    let ping = traffic::ping(&guests[0], "10.78.0.2", 20).unwrap();
    assert_eq!((ping.sent, ping.received), (20, 20));
    let target: Target = "tcp:10.78.0.2:7001".parse().unwrap();
    let stream = traffic::stream(&guests[0], &target, 65_536, 8 << 20, LIMIT).unwrap();
    assert_eq!(stream.total_bytes, 8 << 20);
    assert_eq!(
        traffic::half_close(&guests[1], &"tcp:10.78.0.1:7001".parse().unwrap(), 100_000)
            .unwrap()
            .bytes,
        100_000
    );
}

#[test]
fn guest_of_user_mode_linux_boots_the_same_agent() {
    let machine = match Machine::user_mode() {
        Ok(machine) => machine,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let mut guests = Guest::boot_all(&machine, vec![GuestSpec::new("uml")]).unwrap();
    let stream = Target::Vsock(1, 7001);
    assert!(traffic::ping_pong(&guests[0], &stream, 4096, 10, LIMIT).is_ok());
    guests[0].kill();
    assert!(guests[0].run(&["true"], LIMIT).is_err());
}
