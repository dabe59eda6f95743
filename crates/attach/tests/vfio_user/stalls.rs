//! A dispatcher that adopts an unmap, a reset or a map late, or never.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_attach::FaultKind;
use causeway_attach::limits::DMA_ACK_MS;
use causeway_attach::native::{VfioUserClient, VfioUserError};
use causeway_attach::vfio_user::message::{DmaUnmap, HEADER_BYTES, Header, RegionAccess, command};
use causeway_memory::Rights;
use causeway_testing::wait::patient;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bench::{Bench, PAGE, map, memory, send_bytes};

/// Time after which QEMU gives a request up.
const QEMU_PATIENCE: Duration = Duration::from_secs(5);
/// Longer than the dispatcher takes when it is only slow.
const SLOW: Duration = Duration::from_millis(1200);

/// A client whose frontend has mapped a page at address 0, and the file of the page.
fn mapped(bench: &mut Bench) -> (VfioUserClient, OwnedFd) {
    let (mut client, file) = (bench.client(), memory(PAGE));
    client.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
    (client, file)
}

/// Lets the dispatcher continue after `time`.
fn resume_after(bench: &Bench, time: Duration) -> JoinHandle<()> {
    let seen = Arc::clone(&bench.seen);
    std::thread::spawn(move || {
        std::thread::sleep(time);
        seen.is_stalled.store(false, Ordering::Relaxed);
    })
}

/// Checks that a request without a reply ended the conversation in time, by a fault of the host.
fn check_end(bench: &Bench, result: &Result<(), VfioUserError>, since: Instant) {
    let took = since.elapsed();
    assert!(
        matches!(result, Err(VfioUserError::Gone | VfioUserError::Conversation(_))),
        "{result:?} after {took:?}"
    );
    assert!(took >= Duration::from_millis(DMA_ACK_MS) && took < patient(QEMU_PATIENCE), "{took:?}");
    bench.seen.is_stalled.store(false, Ordering::Relaxed);
    let error = bench.wait_error();
    assert!(error.contains("did not adopt"), "{error}");
    let kind = bench.seen.error.lock().unwrap().as_ref().map(|error| error.kind());
    assert_eq!(kind, Some(FaultKind::Host));
    assert!(bench.handle.map().is_empty(), "grants are released");
}

#[test]
fn vfio_user_unmap_without_end_ends_the_conversation_without_a_reply() {
    let mut bench = Bench::new();
    let (mut client, _file) = mapped(&mut bench);
    let epoch = bench.handle.map();
    let since = Instant::now();
    let result = client.unmap(0, PAGE);
    check_end(&bench, &result, since);
    assert!(epoch.contains(0, PAGE, Rights::READ), "the old epoch stays mapped");
}

#[test]
fn vfio_user_stalled_dispatcher_does_not_reach_memory_after_the_disconnect() {
    let mut bench = Bench::new();
    let (mut client, file) = mapped(&mut bench);
    let epoch = bench.handle.map();
    epoch.write(0, b"early").unwrap();
    let since = Instant::now();
    let result = client.unmap(0, PAGE);
    // The dispatcher continues the work in progress with the epoch of before.
    epoch.write(0, b"late!").unwrap();
    epoch.write(PAGE - 5, b"late!").unwrap();
    check_end(&bench, &result, since);
    let mut bytes = vec![0; usize::try_from(PAGE).unwrap()];
    rustix::io::pread(&file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes[..5], b"early");
    assert!(bytes[5..].iter().all(|byte| *byte == 0));
}

#[test]
fn vfio_user_reset_without_end_ends_the_conversation_without_a_reply() {
    let mut bench = Bench::new();
    let (mut client, _file) = mapped(&mut bench);
    bench.seen.is_stalled.store(true, Ordering::Relaxed);
    let since = Instant::now();
    let result = client.reset();
    check_end(&bench, &result, since);
}

#[test]
fn vfio_user_map_is_answered_before_the_dispatcher_adopts_it_after_the_limit() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(PAGE);
    bench.seen.is_stalled.store(true, Ordering::Relaxed);
    let since = Instant::now();
    client.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
    assert!(since.elapsed() < patient(QEMU_PATIENCE), "{:?}", since.elapsed());
    bench.seen.is_stalled.store(false, Ordering::Relaxed);
    client.reset().unwrap();
    assert!(bench.handle.map().contains(0, PAGE, Rights::READ_WRITE));
}

#[test]
fn vfio_user_unmap_and_reset_wait_for_a_slow_dispatcher() {
    let mut bench = Bench::new();
    let (mut client, _file) = mapped(&mut bench);
    for is_reset in [false, true] {
        bench.seen.is_stalled.store(true, Ordering::Relaxed);
        let resumes = resume_after(&bench, SLOW);
        let since = Instant::now();
        if is_reset { client.reset() } else { client.unmap(0, PAGE) }.unwrap();
        let took = since.elapsed();
        resumes.join().unwrap();
        assert!(took >= SLOW - Duration::from_millis(10) && took < patient(3 * SLOW), "{took:?}");
    }
}

#[test]
fn vfio_user_unmap_waits_for_the_users_of_every_earlier_epoch() {
    let mut bench = Bench::new();
    let (mut client, file) = mapped(&mut bench);
    let epoch = bench.handle.map();
    client.map(&map(PAGE, 0, 1), Some(file.as_fd())).unwrap();
    client.map(&map(2 * PAGE, 0, 1), Some(file.as_fd())).unwrap();
    let user = std::thread::spawn(move || {
        std::thread::sleep(SLOW);
        drop(epoch);
    });
    let since = Instant::now();
    client.unmap(0, PAGE).unwrap();
    let took = since.elapsed();
    user.join().unwrap();
    assert!(took >= SLOW - Duration::from_millis(10), "{took:?}");
}

/// Returns the identifier and the command of the next reply, which has `payload` bytes; `None` if
/// none arrives within `time`.
fn next_reply(client: &VfioUserClient, payload: usize, time: Duration) -> Option<(u16, u16)> {
    let nanos = i64::from(time.subsec_nanos());
    let time = Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap(), tv_nsec: nanos };
    if poll(&mut [PollFd::new(client, PollFlags::IN)], Some(&time)).unwrap() == 0 {
        return None;
    }
    let mut bytes = vec![0; HEADER_BYTES + payload];
    assert_eq!(rustix::io::read(client, &mut bytes[..]).unwrap(), bytes.len());
    let header = Header::parse(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
    assert_eq!((header.is_reply(), header.errno()), (true, None));
    Some((header.id, header.command))
}

#[test]
fn vfio_user_register_reads_are_answered_while_an_unmap_waits() {
    let mut bench = Bench::new();
    let (client, _file) = mapped(&mut bench);
    let epoch = bench.handle.map();
    let unmap = DmaUnmap { flags: 0, address: 0, size: PAGE }.emit();
    let access = RegionAccess { offset: 0, region: 0, count: 4 }.emit();
    let send = |id, command, payload: &[u8]| {
        let header = Header::command(id, command, payload.len()).emit();
        send_bytes(&client, &[header.as_slice(), payload].concat(), &[]);
    };
    send(100, command::DMA_UNMAP, &unmap);
    std::thread::sleep(Duration::from_millis(50));
    let second = patient(Duration::from_secs(1));
    for id in 101..111 {
        send(id, command::REGION_READ, &access);
        assert_eq!(next_reply(&client, 20, second), Some((id, command::REGION_READ)));
    }
    // A write waits for its turn, and so does a read after the write.
    send(111, command::REGION_WRITE, &[access.as_slice(), &[1; 4]].concat());
    send(112, command::REGION_READ, &access);
    assert_eq!(next_reply(&client, 16, Duration::from_millis(200)), None);
    drop(epoch);
    assert_eq!(next_reply(&client, 24, second), Some((100, command::DMA_UNMAP)));
    assert_eq!(next_reply(&client, 16, second), Some((111, command::REGION_WRITE)));
    assert_eq!(next_reply(&client, 20, second), Some((112, command::REGION_READ)));
}

#[test]
fn vfio_user_close_or_drop_while_an_unmap_waits_ends_the_thread() {
    for is_dropped in [false, true] {
        let name = if is_dropped { "waitdrop" } else { "waitclose" };
        let mut bench = Bench::named(name);
        let (client, _file) = mapped(&mut bench);
        let _epoch = bench.handle.map();
        let unmap = DmaUnmap { flags: 0, address: 0, size: PAGE }.emit();
        let header = Header::command(100, command::DMA_UNMAP, unmap.len()).emit();
        send_bytes(&client, &[header, unmap].concat(), &[]);
        std::thread::sleep(Duration::from_millis(50));
        let since = Instant::now();
        if is_dropped {
            bench.stop();
            let mut byte = [0];
            let got = rustix::io::read(&client, &mut byte[..]);
            assert!(!matches!(got, Ok(1)), "no reply is sent");
        } else {
            drop(client);
        }
        let thread = format!("vfio-{name}");
        crate::bench::wait_for("the end of the thread", || !crate::bench::has_thread(&thread));
        assert!(since.elapsed() < patient(Duration::from_secs(1)), "{:?}", since.elapsed());
    }
}
