//! DMA mappings: rights, overlap, unmaps, epochs, limits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use causeway_attach::Event;
use causeway_attach::native::VfioUserError;
use causeway_attach::vfio_user::message::{DMA_READABLE, DMA_WRITABLE, DmaMap};
use causeway_memory::Rights;
use causeway_memory::limits::GRANTS_MAX;
use causeway_testing::wait::patient;

use crate::bench::{Bench, PAGE, map, memory};

/// Returns the errno of a refusal.
fn errno<T: std::fmt::Debug>(result: Result<T, VfioUserError>) -> i32 {
    match result {
        Err(VfioUserError::Refused { errno, .. }) => errno,
        other => panic!("not refused: {other:?}"),
    }
}

/// Far below the limit after which an unmap ends the conversation.
const SOON: Duration = Duration::from_millis(490);
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

#[test]
fn vfio_user_map_is_usable_when_the_reply_arrives() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(16 * PAGE);
    rustix::io::pwrite(&file, b"payload", 3 * PAGE).unwrap();
    client.map(&map(0x10_0000, 2 * PAGE, 4), Some(file.as_fd())).unwrap();
    let guest = bench.handle.map();
    let mut read = [0; 7];
    guest.read(0x10_1000, &mut read).unwrap();
    assert_eq!(&read, b"payload");
    guest.write(0x10_3ff8, b"the end.").unwrap();
    let mut end = [0; 8];
    rustix::io::pread(&file, &mut end, 6 * PAGE - 8).unwrap();
    assert_eq!(&end, b"the end.");
    assert!(guest.write(0x10_3ffc, b"past the end").is_err());
    bench.wait_event(Event::MemoryChanged);
}

#[test]
fn vfio_user_map_flags_become_rights() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(16 * PAGE);
    let with = |flags, address| DmaMap { flags, ..map(address, 0, 1) };
    client.map(&with(DMA_READABLE, 0x1000), Some(file.as_fd())).unwrap();
    client.map(&with(DMA_WRITABLE, 0x2000), Some(file.as_fd())).unwrap();
    let guest = bench.handle.map();
    assert!(guest.contains(0x1000, PAGE, Rights::READ));
    assert!(!guest.contains(0x1000, 1, Rights::WRITE));
    assert!(guest.contains(0x2000, PAGE, Rights::WRITE));
    assert!(!guest.contains(0x2000, 1, Rights::READ));
    for flags in [0, 4, 8, u32::MAX] {
        assert_eq!(errno(client.map(&with(flags, 0x8000), Some(file.as_fd()))), EINVAL);
    }
}

#[test]
fn vfio_user_maps_that_overlap_or_are_misaligned_are_refused() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(16 * PAGE);
    client.map(&map(0x10_0000, 0, 4), Some(file.as_fd())).unwrap();
    for (address, pages) in [(0x10_0000, 4), (0x10_3000, 1), (0xf_f000, 2), (0xf_f000, 16)] {
        let result = client.map(&map(address, 0, pages), Some(file.as_fd()));
        assert_eq!(errno(result), EEXIST, "{address:#x}");
    }
    let wrong = [
        DmaMap { address: 0x20_0800, ..map(0, 0, 1) },
        DmaMap { size: 100, ..map(0x20_0000, 0, 1) },
        DmaMap { size: 0, ..map(0x20_0000, 0, 1) },
        DmaMap { size: !0xfff, ..map(0x20_0000, 0, 1) },
        DmaMap { address: !0xfff, ..map(0, 0, 2) },
        map(0x20_0000, 15 * PAGE, 2),
        map(0x20_0000, !0xfff, 2),
    ];
    for map in wrong {
        assert_eq!(errno(client.map(&map, Some(file.as_fd()))), EINVAL, "{map:x?}");
        let _ = client.map(&map, None);
    }
    assert_eq!(bench.handle.map().bytes(), 4 * PAGE, "refusals change nothing");
}

#[test]
fn vfio_user_map_without_a_descriptor_grants_nothing() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    client.map(&map(0xfd00_0000, 0, 16), None).unwrap();
    assert!(bench.handle.map().is_empty());
    client.unmap(0xfd00_0000, 16 * PAGE).unwrap();
}

#[test]
fn vfio_user_unmapped_addresses_are_refused() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(16 * PAGE);
    for page in 0..8 {
        client.map(&map(0x10_0000 + page * PAGE, page * PAGE, 1), Some(file.as_fd())).unwrap();
    }
    client.map(&map(0x20_0000, 0, 4), Some(file.as_fd())).unwrap();
    client.unmap(0x10_2000, 4 * PAGE).unwrap();
    let guest = bench.handle.map();
    assert!(guest.contains(0x10_0000, 2 * PAGE, Rights::READ_WRITE));
    for page in 2..6 {
        assert!(guest.read(0x10_0000 + page * PAGE, &mut [0; 1]).is_err());
    }
    assert!(guest.contains(0x10_6000, 2 * PAGE, Rights::READ_WRITE));
    // A reply to an unmap waits for the users of earlier epochs.
    drop(guest);
    assert_eq!(errno(client.unmap(0x20_1000, PAGE)), EINVAL, "a part of a mapping");
    client.unmap(0x40_0000, PAGE).unwrap();
    client.unmap_all().unwrap();
    assert!(bench.handle.map().is_empty());
}

#[test]
fn vfio_user_unmap_up_to_the_end_of_the_address_space_is_clamped() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(16 * PAGE);
    client.unmap(0xfef0_0000, 0xffff_ffff_0110_0000).unwrap();
    client.map(&map(0x1000, 0, 1), Some(file.as_fd())).unwrap();
    client.map(&map(0xfef0_0000, 0, 1), Some(file.as_fd())).unwrap();
    client.map(&map(0x1_0000_0000, 0, 1), Some(file.as_fd())).unwrap();
    client.unmap(0xfef0_0000, 0xffff_ffff_0110_0000).unwrap();
    assert_eq!(bench.handle.map().bytes(), PAGE);
    client.unmap(0, u64::MAX).unwrap();
    assert!(bench.handle.map().is_empty());
}

#[test]
fn vfio_user_unmap_waits_for_the_users_of_the_old_epoch() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(PAGE);
    client.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
    let epoch = bench.handle.map();
    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        assert!(epoch.contains(0, 1, Rights::READ));
        drop(epoch);
    });
    let since = Instant::now();
    client.unmap(0, PAGE).unwrap();
    let took = since.elapsed();
    user.join().unwrap();
    assert!(took >= Duration::from_millis(95), "answered after {took:?}");
    assert!(took < patient(SOON), "answered after {took:?}");
    // A map does not wait for them.
    let epoch = bench.handle.map();
    let since = Instant::now();
    client.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
    assert!(since.elapsed() < patient(SOON));
    drop(epoch);
}

#[test]
fn vfio_user_many_pages_of_one_file_are_mapped_in_bounded_time() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let file = memory(GRANTS_MAX as u64 * PAGE);
    let since = Instant::now();
    // Reversed, so that no two neighbours of the file are neighbours of the guest.
    let last = GRANTS_MAX as u64 - 1;
    let maps: Vec<DmaMap> =
        (0..=last).map(|n| map(0x1_0000_0000 + n * PAGE, (last - n) * PAGE, 1)).collect();
    client.map_all(&maps, file.as_fd()).unwrap();
    let took = since.elapsed();
    println!("{GRANTS_MAX} maps took {took:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
    let guest = bench.handle.map();
    assert_eq!(guest.bytes(), GRANTS_MAX as u64 * PAGE);
    guest.write(0x1_0000_0000, b"x").unwrap();
    drop(guest);
    let one_more = client.map(&map(0x1000, 0, 1), Some(file.as_fd()));
    assert_eq!(errno(one_more), ENOSPC);
    let since = Instant::now();
    client.unmap(0x1_0000_0000, GRANTS_MAX as u64 * PAGE).unwrap();
    println!("one unmap of all took {:?}", since.elapsed());
    assert!(bench.handle.map().is_empty());
}

#[test]
fn vfio_user_files_are_limited() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let mut refused = None;
    for n in 0..100 {
        let file = memory(PAGE);
        if let Err(error) = client.map(&map(n * PAGE, 0, 1), Some(file.as_fd())) {
            refused = Some((n, errno::<()>(Err(error))));
            break;
        }
    }
    assert_eq!(refused, Some((64, ENOSPC)));
    client.unmap(0, PAGE).unwrap();
    let file = memory(PAGE);
    client.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
}
