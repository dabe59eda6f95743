//! Interrupt vectors: assignment, pending interrupts, and frontends that block them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_attach::native::VfioUserError;
use causeway_attach::vfio_user::message::{SetIrqs, command};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::bench::{Bench, VECTORS, event, is_signalled, is_signalled_now, memory};

const MSI: u32 = 1;
const MSIX: u32 = 2;

fn borrowed(events: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    events.iter().map(AsFd::as_fd).collect()
}

#[test]
fn vfio_user_interrupts_reach_the_eventfd_of_their_vector() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let events: Vec<OwnedFd> = (0..VECTORS).map(|_| event()).collect();
    client.set_interrupts(MSIX, 0, &borrowed(&events)).unwrap();
    bench.handle.raise(13).unwrap();
    assert!(is_signalled(&events[13]));
    assert!(!events.iter().any(is_signalled_now), "no other vector");
    bench.handle.raise(VECTORS as usize).unwrap();
    bench.handle.raise(usize::MAX).unwrap();
    assert_eq!(bench.handle.vectors().raised(), 1);
    client.clear_interrupts(MSIX).unwrap();
    bench.handle.raise(13).unwrap();
    assert!(!is_signalled_now(&events[13]));
}

#[test]
fn vfio_user_interrupts_without_an_eventfd_stay_pending() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    bench.handle.raise(1).unwrap();
    let events = [event(), event()];
    client.set_interrupts(MSIX, 0, &borrowed(&events)).unwrap();
    assert!(is_signalled(&events[1]), "raised with the assignment");
    assert!(!is_signalled_now(&events[0]));
    client.set_interrupts(MSIX, 0, &borrowed(&events)).unwrap();
    client.device_info().unwrap();
    assert!(!is_signalled_now(&events[1]), "raised once");
    client.clear_interrupts(MSIX).unwrap();
    bench.handle.raise(1).unwrap();
    client.reset().unwrap();
    client.set_interrupts(MSIX, 0, &borrowed(&events)).unwrap();
    client.device_info().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!is_signalled_now(&events[1]), "a reset forgets pending interrupts");
}

#[test]
fn vfio_user_interrupts_use_msi_if_msix_has_no_eventfd() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let events = [event()];
    client.set_interrupts(MSI, 1, &borrowed(&events)).unwrap();
    bench.handle.raise(1).unwrap();
    assert!(is_signalled(&events[0]));
}

/// A guest that gives MSI-X up for MSI, and the reverse, loses no interrupt that came between.
#[test]
fn vfio_user_interrupts_stay_pending_across_a_change_of_their_type() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    for (old, new) in [(MSIX, MSI), (MSI, MSIX)] {
        let events = [event(), event()];
        client.set_interrupts(old, 0, &borrowed(&events[..1])).unwrap();
        client.clear_interrupts(old).unwrap();
        bench.handle.raise(0).unwrap();
        client.set_interrupts(new, 0, &borrowed(&events[1..])).unwrap();
        assert!(is_signalled(&events[1]), "raised by type {new}");
        assert!(!is_signalled_now(&events[0]), "type {old} has no eventfd");
        client.clear_interrupts(new).unwrap();
    }
    // The interrupt was raised once, and waits for no type.
    let event = event();
    client.set_interrupts(MSIX, 0, &[event.as_fd()]).unwrap();
    client.device_info().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!is_signalled_now(&event));
}

#[test]
fn vfio_user_one_vector_loses_its_eventfd() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let events = [event(), event()];
    client.set_interrupts(MSIX, 0, &borrowed(&events)).unwrap();
    // One vector and no descriptor: the frontend's descriptor is -1.
    let take = SetIrqs { flags: 4 | 32, index: MSIX, start: 0, count: 1 };
    client.request(command::DEVICE_SET_IRQS, &take.emit(), &[]).unwrap();
    bench.handle.raise(0).unwrap();
    bench.handle.raise(1).unwrap();
    assert!(!is_signalled_now(&events[0]) && is_signalled_now(&events[1]));
}

#[test]
fn vfio_user_wrong_assignments_are_refused() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let (good, file) = (event(), memory(4096));
    let (one, two) = ([good.as_fd()], [good.as_fd(), file.as_fd()]);
    let wrong: [(u32, u32, u32, u32, &[BorrowedFd<'_>]); 12] = [
        (36, MSIX, VECTORS, 1, &one),
        (36, MSIX, u32::MAX, 1, &one),
        (36, MSIX, 0, VECTORS + 1, &one),
        (36, MSIX, 0, 2, &one),
        (36, MSIX, 0, 2, &two),
        (36, 0, 0, 1, &one),
        (36, 5, 0, 1, &one),
        (33, MSIX, 0, 1, &[]),
        (34, MSIX, 0, 1, &[]),
        (12, MSIX, 0, 1, &one),
        (0, MSIX, 0, 0, &[]),
        (u32::MAX, MSIX, 0, 1, &one),
    ];
    for (flags, index, start, count, fds) in wrong {
        let set = SetIrqs { flags, index, start, count };
        let result = client.request(command::DEVICE_SET_IRQS, &set.emit(), fds);
        assert!(matches!(result, Err(VfioUserError::Refused { .. })), "{set:?} {result:?}");
    }
    bench.handle.raise(0).unwrap();
    assert!(!is_signalled_now(&good));
    client.set_interrupts(MSIX, 0, &one).unwrap();
    assert!(is_signalled(&good), "the pending interrupt");
}

#[test]
fn hostile_vfio_user_eventfd_that_blocks_ends_the_attachment_and_bars_the_port() {
    let mut bench = Bench::named("blocks1");
    let mut client = bench.client();
    bench.handle.raise(0).unwrap();
    let full = event();
    // The write of the dispatcher would block: full, and blocking after it was assigned. So the
    // vector gets the eventfd while the dispatcher stands still.
    bench.seen.is_stalled.store(true, std::sync::atomic::Ordering::Relaxed);
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    client.set_interrupts(MSIX, 0, &[full.as_fd()]).unwrap();
    fcntl_setfl(&full, fcntl_getfl(&full).unwrap() - OFlags::NONBLOCK).unwrap();
    bench.seen.is_stalled.store(false, std::sync::atomic::Ordering::Relaxed);
    let text = bench.wait_error();
    assert!(text.contains("interrupt vector"), "{text}");
    assert!(bench.seen.error.lock().unwrap().as_ref().unwrap().is_barred());
    crate::bench::wait_for("the end of the thread", || !crate::bench::has_thread("vfio-blocks1"));
}
