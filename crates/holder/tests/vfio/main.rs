//! vfio-user frontends outlive causewayd: their set-up reaches the next, and they are answered
//! meanwhile.

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod hostile;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use causeway_attach::Event;
use causeway_attach::native::VfioUserError;
use causeway_attach::vfio_user::message::command;
use causeway_holder::limits::{
    DEFERRED_MAX, ENDING_MAX, PARTING_GRACE, REGISTER_SPACE_BYTES, REGISTERS_MAX, WAIT_MAX,
};

use bench::{
    BAR_BYTES, DOORBELL, Life, PAGE, PORT, client, event, is_closed, listen, map, memory, read,
    wait_for,
};
use common::Held;

#[test]
fn vfio_setup_reaches_the_next_causewayd() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    let (file, vector) = (memory(4), event());
    rustix::io::pwrite(&file, b"guest", PAGE).unwrap();
    frontend.map(&map(0x10_000, 0, 2), Some(file.as_fd())).unwrap();
    frontend.map(&map(0x20_000, 2 * PAGE, 1), Some(file.as_fd())).unwrap();
    frontend.unmap(0x20_000, PAGE).unwrap();
    frontend.set_interrupts(2, 3, &[vector.as_fd()]).unwrap();
    frontend.write(0, 0x10, &[1; 4]).unwrap();
    frontend.write(0, DOORBELL, &[2; 4]).unwrap();
    frontend.write(0, 0x10, &[3; 4]).unwrap();
    drop(life);
    for _ in 0..3 {
        let life = Life::new(&held);
        let before = life.await_event(Event::Resumed);
        assert!(before.contains(&Event::MemoryChanged) && !before.contains(&Event::Doorbell(0)));
        assert_eq!(life.writes(), [(DOORBELL, vec![2; 4]), (0x10, vec![3; 4])]);
        let guest = life.handle().map();
        let mut bytes = [0; 5];
        guest.read(0x10_000 + PAGE, &mut bytes).unwrap();
        assert_eq!(&bytes, b"guest");
        assert!(guest.read(0x20_000, &mut bytes).is_err(), "an unmapped page");
        life.handle().raise(3).unwrap();
        assert!(rustix::io::read(&vector, &mut [0; 8]).is_ok());
        assert_eq!(read(&mut frontend, 0x10), [3; 4]);
        frontend.write(0, DOORBELL, &[2; 4]).unwrap();
        frontend.write(0, 0x10, &[3; 4]).unwrap();
        life.await_event(Event::Doorbell(0));
    }
}

#[test]
fn vfio_frontend_is_answered_while_causewayd_is_away() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    let file = memory(4);
    frontend.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
    frontend.write(0, 8, &[5; 4]).unwrap();
    assert_eq!(read(&mut frontend, 8), [5; 4]);
    let info = frontend.device_info().unwrap();
    let size = frontend.region(0).unwrap().info.size;
    let vectors = frontend.interrupt_info(2).unwrap();
    drop(life);
    std::thread::sleep(2 * PARTING_GRACE);
    let since = Instant::now();
    assert_eq!(read(&mut frontend, 8), [5; 4]);
    assert_eq!(frontend.device_info().unwrap(), info);
    assert_eq!(frontend.region(0).unwrap().info.size, size);
    assert_eq!(frontend.interrupt_info(2).unwrap(), vectors);
    frontend.map(&map(PAGE, PAGE, 1), Some(file.as_fd())).unwrap();
    frontend.unmap(0, PAGE).unwrap();
    let overlaps = frontend.map(&map(PAGE, 0, 2), Some(file.as_fd()));
    assert!(matches!(overlaps, Err(VfioUserError::Refused { errno: 17, .. })), "{overlaps:?}");
    let vector = event();
    frontend.set_interrupts(2, 0, &[vector.as_fd()]).unwrap();
    frontend.write_posted(0, 12, &[6; 4]).unwrap();
    frontend.write(0, DOORBELL, &[7; 4]).unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "answered late: {:?}", since.elapsed());
    let life = Life::new(&held);
    let before = life.await_event(Event::Resumed);
    assert!(!before.contains(&Event::Doorbell(0)));
    life.await_event(Event::Doorbell(0));
    let expected = [(8, vec![5; 4]), (12, vec![6; 4]), (DOORBELL, vec![7; 4])];
    assert_eq!(life.writes(), expected, "the recorded write, then those of the meantime");
    let guest = life.handle().map();
    assert!(guest.read(PAGE, &mut [0; 4]).is_ok() && guest.read(0, &mut [0; 4]).is_err());
    life.handle().raise(0).unwrap();
    assert!(rustix::io::read(&vector, &mut [0; 8]).is_ok());
    assert_eq!(read(&mut frontend, 12), [6; 4]);
}

#[test]
fn vfio_reset_without_causewayd_forgets_register_writes() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    frontend.write(0, 8, &[5; 4]).unwrap();
    drop(life);
    frontend.write(0, 12, &[6; 4]).unwrap();
    frontend.reset().unwrap();
    frontend.write(0, 16, &[7; 4]).unwrap();
    let life = Life::new(&held);
    life.await_event(Event::Resumed);
    wait_for("the write", || !life.writes().is_empty());
    assert_eq!(life.writes(), [(16, vec![7; 4])]);
}

#[test]
fn vfio_query_that_memory_does_not_answer_is_refused_before_the_frontend_gives_up() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    drop(life);
    let since = Instant::now();
    let unknown = frontend.read(0, 100, &mut [0; 4]);
    let code = command::REGION_READ;
    let expected =
        matches!(unknown, Err(VfioUserError::Refused { command, errno: 5 }) if command == code);
    assert!(expected, "{unknown:?}");
    assert!(since.elapsed() >= WAIT_MAX && since.elapsed() < Duration::from_secs(5));
    // A query that waits for less reaches the next causewayd.
    let path = held.path(PORT);
    let asking = std::thread::spawn(move || read(&mut frontend, 100));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!asking.is_finished() && path.exists());
    let _life = Life::new(&held);
    assert_eq!(asking.join().unwrap(), [0; 4]);
}

#[test]
fn vfio_commands_in_flight_at_a_kill_are_answered_and_recorded() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    assert_eq!(read(&mut frontend, 8), [0; 4]);
    drop(life);
    // A causewayd that reads nothing after the set-up.
    let (listener, control) = listen(&held);
    let silent = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        hostile::answer_setup(&stream);
        std::thread::sleep(Duration::from_millis(300));
        drop((stream, listener, control));
    });
    std::thread::sleep(Duration::from_millis(150));
    let file = memory(1);
    frontend.map(&map(PAGE, 0, 1), Some(file.as_fd())).unwrap();
    assert_eq!(read(&mut frontend, 8), [0; 4]);
    silent.join().unwrap();
    let life = Life::new(&held);
    life.await_event(Event::Resumed);
    assert!(life.handle().map().read(PAGE, &mut [0; 4]).is_ok());
}

#[test]
fn vfio_writes_beyond_the_limit_wait_for_causewayd() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    drop(life);
    let writes = u32::try_from(2 * DEFERRED_MAX).unwrap();
    for n in 0..writes {
        frontend.write_posted(0, 16, &n.to_le_bytes()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let life = Life::new(&held);
    wait_for("all writes", || life.writes().len() == 2 * DEFERRED_MAX);
    let expected: Vec<_> = (0..writes).map(|n| (16, n.to_le_bytes().to_vec())).collect();
    assert_eq!(life.writes(), expected, "in order");
}

#[test]
fn vfio_frontend_of_a_deleted_port_is_disconnected_and_the_next_begins_anew() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    frontend.write(0, 8, &[5; 4]).unwrap();
    drop(frontend);
    life.await_event(Event::Closed);
    let mut next = client(&held);
    assert_eq!(read(&mut next, 8), [5; 4]);
    assert!(!life.seen.events.lock().unwrap().contains(&Event::Resumed));
    drop(life);
    held.client().synced().unwrap();
    assert!(is_closed(&next));
}

#[test]
fn vfio_mapping_that_the_next_causewayd_refuses_is_dropped() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    drop(life);
    let (short, long) = (memory(1), memory(8));
    for (at, file) in [(0, &long), (16 * PAGE, &short), (32 * PAGE, &long)] {
        frontend.map(&map(at, 0, 4), Some(file.as_fd())).unwrap();
    }
    for _ in 0..2 {
        let life = Life::new(&held);
        life.await_event(Event::Resumed);
        let guest = life.handle().map();
        let is_granted = |at| guest.read(at, &mut [0; 4]).is_ok();
        assert_eq!([0, 16, 32].map(|page| is_granted(page * PAGE)), [true, false, true]);
    }
    let _life = Life::new(&held);
    frontend.map(&map(16 * PAGE, 0, 4), Some(long.as_fd())).unwrap();
}

#[test]
fn vfio_frontend_whose_memory_no_causewayd_has_used_is_replayed_as_new() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    frontend.write(0, 8, &[5; 4]).unwrap();
    drop(life);
    let file = memory(1);
    frontend.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
    for is_known in [false, true, true] {
        let life = Life::new(&held);
        life.await_event(Event::Resumed);
        let is_resuming = life.registers.is_resuming.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(is_resuming, is_known);
        assert_eq!(life.writes(), [(8, vec![5; 4])]);
        // The replay is complete once a command is answered.
        assert_eq!(read(&mut frontend, 8), [5; 4]);
    }
}

#[test]
fn vfio_unmapping_is_answered_once_the_process_of_causewayd_has_ended() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    frontend.map(&map(0, 0, 1), Some(memory(1).as_fd())).unwrap();
    assert_eq!(read(&mut frontend, 8), [0; 4]);
    // The control connection is closed, and yet the process may use the memory.
    let process = life.hang();
    assert_eq!(read(&mut frontend, 8), [0; 4], "a query is answered");
    let unmapping = std::thread::spawn(move || (frontend.unmap(0, PAGE), frontend));
    std::thread::sleep(2 * PARTING_GRACE);
    assert!(!unmapping.is_finished(), "a success while the memory is in use");
    drop(process);
    let (unmapped, mut frontend) = unmapping.join().unwrap();
    unmapped.unwrap();
    let life = Life::new(&held);
    life.await_event(Event::Resumed);
    assert!(life.handle().map().is_empty());
    assert_eq!(read(&mut frontend, 8), [0; 4]);
}

#[test]
fn vfio_frontend_of_a_causewayd_that_hangs_is_disconnected_without_a_reply() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    frontend.map(&map(0, 0, 1), Some(memory(1).as_fd())).unwrap();
    let process = life.hang();
    // Another causewayd does not get the memory that the first may use.
    let (listener, _control) = listen(&held);
    listener.set_nonblocking(true).unwrap();
    let since = Instant::now();
    let unmapped = frontend.unmap(0, PAGE);
    assert!(!matches!(unmapped, Ok(()) | Err(VfioUserError::Refused { .. })), "{unmapped:?}");
    let took = since.elapsed();
    let limit = ENDING_MAX + Duration::from_millis(500);
    assert!(took >= ENDING_MAX - PARTING_GRACE && took < limit, "{took:?}");
    assert!(listener.accept().is_err(), "connected to a second causewayd");
    drop(process);
}

#[test]
fn vfio_doorbells_take_no_room_from_registers() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    let places = 2 * u64::try_from(REGISTERS_MAX).unwrap();
    for place in 0..places {
        frontend.write(0, REGISTER_SPACE_BYTES + 8 * place, &[1; 8]).unwrap();
    }
    frontend.write(0, 8, &[2; 4]).unwrap();
    drop(life);
    // While causewayd is away, one doorbell is kept, behind the registers.
    for place in 0..places {
        frontend.write(0, BAR_BYTES - 8 - 8 * place, &[3; 8]).unwrap();
    }
    frontend.write(0, 12, &[4; 4]).unwrap();
    frontend.write(0, REGISTER_SPACE_BYTES, &[5; 8]).unwrap();
    let life = Life::new(&held);
    wait_for("the last write", || life.writes().len() >= 3);
    let expected = [(8, vec![2; 4]), (12, vec![4; 4]), (REGISTER_SPACE_BYTES, vec![5; 8])];
    assert_eq!(life.writes(), expected);
}

#[test]
fn vfio_reset_behind_writes_that_were_not_answered_forgets_them() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    frontend.write(0, 8, &[5; 4]).unwrap();
    drop(life);
    // A causewayd that reads nothing after the set-up: writes, a reset and a write are in flight.
    let (listener, control) = listen(&held);
    let silent = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        hostile::answer_setup(&stream);
        std::thread::sleep(Duration::from_millis(300));
        drop((stream, listener, control));
    });
    std::thread::sleep(Duration::from_millis(100));
    frontend.write_posted(0, 12, &[6; 4]).unwrap();
    frontend.write_posted(0, 16, &[7; 4]).unwrap();
    frontend.reset().unwrap();
    frontend.write(0, 20, &[8; 4]).unwrap();
    silent.join().unwrap();
    let life = Life::new(&held);
    life.await_event(Event::Resumed);
    wait_for("the write", || !life.writes().is_empty());
    assert_eq!(life.writes(), [(20, vec![8; 4])]);
}
