//! Version, descriptions, registers, reset and close.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_attach::native::{VfioUserClient, VfioUserError};
use causeway_attach::vfio_user::message::{
    HEADER_BYTES, Header, PayloadReader, REGION_CAPS, REGION_MMAP, RegionInfo, command,
};
use causeway_attach::{Attachment, Event};
use causeway_memory::{Mapping, Rights};
use causeway_testing::wait::patient;

use crate::bench::{
    BAR_BYTES, Bench, DOORBELL, PAGE, VECTORS, WRONG_DOORBELL, attach, has_thread, map, memory,
    poll_events, registers, wait_for,
};

#[test]
fn vfio_user_agrees_on_a_version_without_multiple_writes() {
    let mut bench = Bench::new();
    let mut client = VfioUserClient::without_version(bench.socket());
    let (reply, _) = client.request(command::VERSION, &[0, 0, 1, 0], &[]).unwrap();
    assert_eq!(reply[..4], [0, 0, 0, 0]);
    let text = std::str::from_utf8(&reply[4..]).unwrap();
    let expected = r#"{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":65536}}"#;
    assert_eq!(text.trim_end_matches('\0'), expected);
    assert!(text.ends_with('\0'));
}

#[test]
fn vfio_user_describes_the_device() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let info = client.device_info().unwrap();
    assert_eq!((info.flags, info.regions, info.interrupts), (3, 9, 5));
    let bar = client.region(0).unwrap();
    assert_eq!(bar.info.size, BAR_BYTES);
    assert_eq!(bar.info.flags, 3 | REGION_MMAP | REGION_CAPS);
    assert_eq!(bar.info.areas, [(PAGE, BAR_BYTES - PAGE)]);
    let config = client.region(7).unwrap();
    assert_eq!((config.info.size, config.info.flags), (256, 3));
    let absent = client.region(3).unwrap();
    assert_eq!((absent.info.size, absent.info.flags), (0, 0));
    assert!(absent.view(0).is_err());
    let counts = [0, 1, 2, 3, 4].map(|index| client.interrupt_info(index).unwrap().count);
    assert_eq!(counts, [0, 2, VECTORS, 0, 0]);
    assert_eq!(client.interrupt_info(2).unwrap().flags, 9);
}

#[test]
fn vfio_user_region_areas_are_mapped_by_the_frontend() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let view = client.region(0).unwrap().view(0).unwrap();
    assert_eq!(view.len() as u64, BAR_BYTES - PAGE);
    view.write(0x100, b"doorbell").unwrap();
    let mapping = Arc::new(Mapping::new(bench.bar.as_fd(), 0, BAR_BYTES).unwrap());
    let own = causeway_memory::View::new(mapping, 0, 0x10000).unwrap();
    assert_eq!(&own.read::<8>(0x1100).unwrap(), b"doorbell");
}

#[test]
fn vfio_user_region_info_states_the_room_that_it_needs() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let request = RegionInfo::emit_request(0, 32);
    let (reply, fds) = client.request(command::DEVICE_GET_REGION_INFO, &request, &[]).unwrap();
    assert!(fds.is_empty() && reply.len() == 32);
    let mut words = PayloadReader(&reply);
    let words = [(); 4].map(|()| words.u32().unwrap());
    assert_eq!(words, [64, 15, 0, 32], "room, flags, index, offset of the capability");
    let request = RegionInfo::emit_request(0, 64);
    let (reply, fds) = client.request(command::DEVICE_GET_REGION_INFO, &request, &[]).unwrap();
    assert_eq!((reply.len(), fds.len()), (64, 1));
}

#[test]
fn vfio_user_registers_are_read_and_written() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write(0, 0x40, &[1, 2, 3, 4]).unwrap();
    client.write_posted(0, 0x44, &[5, 6, 7, 8]).unwrap();
    let mut read = [0; 8];
    client.read(0, 0x40, &mut read).unwrap();
    assert_eq!(read, [1, 2, 3, 4, 5, 6, 7, 8]);
    let mut config = [0; 256];
    client.read(7, 0, &mut config).unwrap();
    assert_eq!(config, [7; 256]);
    let mut all = vec![0; usize::try_from(BAR_BYTES).unwrap()];
    client.read(0, 0, &mut all).unwrap();
    client.read(0, BAR_BYTES, &mut []).unwrap();
    let refused = |result: Result<(), VfioUserError>| {
        matches!(result, Err(VfioUserError::Refused { errno: 22, .. }))
    };
    assert!(refused(client.read(0, BAR_BYTES - 1, &mut [0; 2])), "past the end");
    assert!(refused(client.read(0, u64::MAX, &mut [0; 2])), "wraps");
    assert!(refused(client.read(4, 0, &mut [0; 1])), "an empty region");
    assert!(refused(client.write(2, 0, &[0; 4])), "a region that may not be written");
    let writes = bench.registers.writes.load(Ordering::Relaxed);
    assert_eq!(writes, 2, "refused writes do not reach the registers");
}

#[test]
fn vfio_user_register_writes_ring_doorbells() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write(0, DOORBELL, &[1]).unwrap();
    bench.wait_event(Event::Doorbell(0));
    client.write(0, WRONG_DOORBELL, &[1]).unwrap();
    client.write_posted(0, 0x20, &[1]).unwrap();
    bench.wait_event(Event::Doorbell(5));
    assert_eq!(bench.take_events(), [Event::Doorbell(0), Event::Doorbell(5)]);
}

#[test]
fn vfio_user_reset_is_complete_when_the_reply_arrives() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.write(0, 0x40, &[1, 2, 3, 4]).unwrap();
    bench.seen.is_stalled.store(true, Ordering::Relaxed);
    client.write(0, DOORBELL, &[1]).unwrap();
    let seen = Arc::clone(&bench.seen);
    let resumes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        seen.is_stalled.store(false, Ordering::Relaxed);
    });
    client.reset().unwrap();
    resumes.join().unwrap();
    assert_eq!(bench.registers.resets.load(Ordering::Relaxed), 1);
    wait_for("the events", || !bench.seen.events.lock().unwrap().is_empty());
    assert_eq!(bench.take_events(), [Event::Reset], "the doorbell before the reset is void");
    let mut read = [9; 4];
    client.read(0, 0x40, &mut read).unwrap();
    assert_eq!(read, [0; 4]);
}

#[test]
fn vfio_user_replies_wait_until_the_events_were_handled() {
    let bar = Arc::new(memory(BAR_BYTES));
    let (mut attachment, socket) = attach("events1", &registers(), &bar);
    let is_done = Arc::new(AtomicUsize::new(0));
    let done = Arc::clone(&is_done);
    let frontend = std::thread::spawn(move || {
        let mut client = VfioUserClient::over(socket).unwrap();
        client.reset().unwrap();
        done.store(1, Ordering::Relaxed);
        client.map(&map(0, 0, 1), Some(memory(PAGE).as_fd())).unwrap();
        done.store(2, Ordering::Relaxed);
        client.write(0, DOORBELL, &[1]).unwrap();
        client
    });
    assert_eq!(poll_events(&mut attachment), [Event::Reset]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(is_done.load(Ordering::Relaxed), 0, "the caller may still reset its state");
    assert_eq!(poll_events(&mut attachment), [Event::MemoryChanged]);
    assert!(attachment.shared_map().unwrap().contains(0, PAGE, Rights::READ_WRITE));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(is_done.load(Ordering::Relaxed), 1);
    assert_eq!(poll_events(&mut attachment), [Event::Doorbell(0)]);
    assert_eq!(attachment.cost(), 3, "an acknowledgement costs nothing");
    drop(frontend.join().unwrap());
    assert_eq!(poll_events(&mut attachment), [Event::Closed]);
    assert!(attachment.shared_map().unwrap().is_empty());
}

#[test]
fn vfio_user_answers_registers_while_the_dispatcher_stands_still() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    bench.seen.is_stalled.store(true, Ordering::Relaxed);
    let since = Instant::now();
    for _ in 0..100 {
        client.write(0, DOORBELL, &[1]).unwrap();
        client.read(0, 0, &mut [0; 4]).unwrap();
    }
    assert!(since.elapsed() < patient(Duration::from_secs(2)), "{:?}", since.elapsed());
    bench.seen.is_stalled.store(false, Ordering::Relaxed);
    bench.wait_event(Event::Doorbell(0));
    assert_eq!(bench.take_events().len(), 1, "rings are coalesced");
}

#[test]
fn vfio_user_close_by_the_frontend_is_reported_and_ends_the_thread() {
    let mut bench = Bench::named("closed1");
    let client = bench.client();
    assert!(has_thread("vfio-closed1"));
    drop(client);
    bench.wait_event(Event::Closed);
    wait_for("the end of the thread", || !has_thread("vfio-closed1"));
    assert!(bench.seen.error.lock().unwrap().is_none());
}

#[test]
fn vfio_user_drop_of_the_attachment_ends_the_thread_and_the_connection() {
    let mut bench = Bench::named("dropped1");
    let mut client = bench.client();
    bench.stop();
    wait_for("the end of the thread", || !has_thread("vfio-dropped1"));
    let since = Instant::now();
    let result = client.device_info();
    assert!(
        matches!(result, Err(VfioUserError::Gone | VfioUserError::Conversation(_))),
        "{result:?}"
    );
    assert!(since.elapsed() < patient(Duration::from_secs(1)));
}

#[test]
fn vfio_user_headers_keep_their_fields() {
    let header = Header::command(0x1234, command::DMA_MAP, 32);
    let bytes = header.emit();
    assert_eq!(bytes, [0x34, 0x12, 2, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let array: [u8; HEADER_BYTES] = bytes.try_into().unwrap();
    assert_eq!(Header::parse(array).unwrap(), header);
    let refusal = header.refusal(0);
    assert_eq!((refusal.flags, refusal.errno(), refusal.size), (0x21, Some(22), 16));
    assert!(!header.without_reply().needs_reply());
}
