//! Frontends that describe their memory wrongly, or take it away.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::common::*;
use causeway_attach::limits::MEMORY_SLOTS_MAX;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{RegionSpec, emit_region, emit_table};
use causeway_attach::{Event, Fault, FaultKind};

/// Grants `regions` in one table, each from a file of its own of `LEN` bytes.
fn grant(bench: &mut Bench, regions: &[RegionSpec]) -> Result<(), Fault> {
    let files: Vec<OwnedFd> = regions.iter().map(|_| memory(LEN)).collect();
    let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    bench.request(R::SET_MEM_TABLE, &emit_table(regions), &fds)
}

/// Both messages that grant a region fail with the same text.
#[track_caller]
fn refused(region: RegionSpec, texts: &[&str]) {
    let mut bench = Bench::granted();
    let result = grant(&mut bench, &[region]);
    assert_fault(&mut bench, result, texts);
    let mut bench = Bench::granted();
    let result = bench.add_region(&region);
    assert_fault(&mut bench, result, texts);
}

#[test]
fn hostile_files_that_are_too_short() {
    let elsewhere = RegionSpec { guest: GUEST + 2 * LEN, user: USER + 2 * LEN, ..region() };
    refused(RegionSpec { len: LEN + 1, ..elsewhere }, &["1048577"]);
    refused(RegionSpec { offset: 1, ..elsewhere }, &["needs 1048577"]);
    refused(RegionSpec { offset: LEN, ..elsewhere }, &["needs 2097152"]);
    refused(RegionSpec { len: 1 << 40, ..elsewhere }, &["1048576 bytes"]);
}

#[test]
fn hostile_regions_that_are_empty_or_wrap() {
    let elsewhere = RegionSpec { guest: GUEST + 2 * LEN, user: USER + 2 * LEN, ..region() };
    refused(RegionSpec { len: 0, ..elsewhere }, &["empty"]);
    refused(RegionSpec { len: u64::MAX, ..elsewhere }, &["wraps"]);
    refused(RegionSpec { offset: u64::MAX, ..elsewhere }, &["wraps"]);
    refused(RegionSpec { offset: u64::MAX - LEN, ..elsewhere }, &["16 TiB"]);
    refused(RegionSpec { guest: u64::MAX - LEN + 1, ..elsewhere }, &["wraps"]);
    refused(RegionSpec { user: u64::MAX - 1, ..elsewhere }, &["wraps"]);
}

#[test]
fn hostile_regions_that_overlap() {
    for shift in [0, 1, LEN - 1] {
        let guest = RegionSpec { guest: GUEST + shift, user: USER + 2 * LEN, ..region() };
        let user = RegionSpec { guest: GUEST + 2 * LEN, user: USER + shift, ..region() };
        for second in [guest, user] {
            let mut bench = Bench::granted();
            let result = bench.add_region(&second);
            assert_fault(&mut bench, result, &["overlap"]);
            let mut bench = Bench::new();
            let result = grant(&mut bench, &[region(), second]);
            assert_fault(&mut bench, result, &["overlap"]);
        }
    }
}

#[test]
fn hostile_region_counts() {
    for count in [0_u32, 9, 33, u32::MAX] {
        let mut bench = Bench::granted();
        let mut table = emit_table(&[region(); 8]);
        table[..4].copy_from_slice(&count.to_ne_bytes());
        let file = memory(LEN);
        let result = bench.request(R::SET_MEM_TABLE, &table, &[file.as_fd(); 8]);
        assert_fault(&mut bench, result, &["SET_MEM_TABLE", &count.to_string()]);
    }
    let mut bench = Bench::granted();
    let mut table = emit_table(&[region()]);
    table[0] = 2;
    let file = memory(LEN);
    let result = bench.request(R::SET_MEM_TABLE, &table, &[file.as_fd(); 2]);
    assert_fault(&mut bench, result, &["SET_MEM_TABLE", "72 expected"]);
}

#[test]
fn hostile_regions_without_end() {
    let mut bench = Bench::granted();
    for nth in 1..MEMORY_SLOTS_MAX as u64 {
        let shift = nth * LEN;
        let next = RegionSpec { guest: GUEST + shift, user: USER + shift, ..region() };
        bench.add_region(&next).unwrap();
    }
    let result = bench.add_region(&RegionSpec { guest: 0, user: 0, len: 4096, offset: 0 });
    assert_fault(&mut bench, result, &["ADD_MEM_REG", &MEMORY_SLOTS_MAX.to_string()]);
}

#[test]
fn hostile_grants_of_all_addresses_leave_others_theirs() {
    const HUGE: u64 = 4 << 40;
    const EXCESS: [&str; 2] = ["bytes of memory are more than one peer may grant", "grant less"];
    const SHORTAGE: [&str; 2] = ["this host's address space is scarce", "try again later"];
    let huge = rustix::fs::memfd_create("huge", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&huge, HUGE).unwrap();
    let spec = |nth: u64| RegionSpec { guest: nth * HUGE, user: nth * HUGE, len: HUGE, offset: 0 };
    let add = |bench: &mut Bench, nth| {
        bench.request(R::ADD_MEM_REG, &emit_region(&spec(nth)), &[huge.as_fd()])
    };
    let mut attackers: Vec<Bench> = Vec::new();
    loop {
        let mut bench = Bench::granted();
        match add(&mut bench, 1) {
            Ok(()) => attackers.push(bench),
            refused => {
                // The frontend requests no more than its share; the grants of others are not its
                // fault.
                assert_eq!(refused.as_ref().unwrap_err().kind, FaultKind::Host);
                break assert_fault(&mut bench, refused, &SHORTAGE);
            }
        }
        assert!(attackers.len() < 28, "half of all addresses are left");
    }
    // A frontend that has its share gets no more, by single regions or by a table.
    let mut first = attackers.pop().unwrap();
    let result = add(&mut first, 2);
    assert_eq!(result.as_ref().unwrap_err().kind, FaultKind::Guest);
    assert_fault(&mut first, result, &EXCESS);
    let mut second = attackers.pop().unwrap();
    let table = emit_table(&[spec(1), spec(2)]);
    let result = second.request(R::SET_MEM_TABLE, &table, &[huge.as_fd(); 2]);
    assert_fault(&mut second, result, &EXCESS);
    let mut third = Bench::granted();
    let log = [HUGE, 0].map(u64::to_ne_bytes).concat();
    let result = third.request(R::SET_LOG_BASE, &log, &[huge.as_fd()]);
    assert_fault(&mut third, result, &["log of written pages", EXCESS[0]]);
}

#[test]
fn hostile_removal_of_an_unknown_region() {
    let wrong = [
        RegionSpec { guest: GUEST + 1, ..region() },
        RegionSpec { len: LEN - 1, ..region() },
        RegionSpec { user: USER + 1, ..region() },
    ];
    for region in wrong {
        let mut bench = Bench::granted();
        let result = bench.request(R::REM_MEM_REG, &emit_region(&region), &[]);
        assert_fault(&mut bench, result, &["REM_MEM_REG", "never added"]);
    }
}

#[test]
fn hostile_descriptors_that_are_no_memory() {
    let (socket, _other) = sockets();
    let directory = rustix::fs::open(
        "/",
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let write_only = rustix::fs::open(
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory(LEN))),
        rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let small = RegionSpec { len: 1, ..region() };
    let region = "region at guest address 0x100000";
    let files = [(event(), region), (socket, region), (directory.unwrap(), "SET_MEM_TABLE")];
    for (file, word) in files.into_iter().chain(write_only.map(|file| (file, region))) {
        let mut bench = Bench::new();
        let result = bench.request(R::SET_MEM_TABLE, &emit_table(&[small]), &[file.as_fd()]);
        assert_eq!(result.as_ref().unwrap_err().kind, FaultKind::Guest);
        assert_fault(&mut bench, result, &[word]);
    }
}

#[test]
fn hostile_file_that_shrinks_while_mapped() {
    let mut good = Bench::running();
    let mut bench = Bench::running();
    rustix::fs::ftruncate(&bench.memory, 0).unwrap();
    bench.server.check_memory(&mut bench.events).expect("nobody has touched it yet");
    let mut chain = causeway_ring::Chain::new();
    let (map, queue) = bench.server.device_mut().queue_mut(0).unwrap();
    assert_eq!(
        queue.ring.as_mut().unwrap().pop(map, &mut chain),
        Ok(false),
        "the record reads as zeroes"
    );
    let result = bench.server.check_memory(&mut bench.events);
    assert_fault(&mut bench, result, &["shrank"]);
    assert_eq!(bench.events, [Event::QueueStopped(0)]);
    good.server.check_memory(&mut good.events).expect("nobody else is touched");
}

#[test]
fn hostile_table_that_takes_a_running_ring_away() {
    let hole = RegionSpec { guest: GUEST + LEN, user: USER + LEN, ..region() };
    let mut bench = Bench::running();
    let result = grant(&mut bench, &[hole]);
    assert_fault(&mut bench, result, &["queue 0", "not in granted memory"]);
    assert_eq!(bench.events, [Event::QueueStopped(0)]);
    // The first byte is granted, the rest is not.
    let mut bench = Bench::running();
    let result = grant(&mut bench, &[RegionSpec { len: 0x2100, ..region() }]);
    assert_fault(&mut bench, result, &["queue 0", "used ring"]);
}

#[test]
fn hostile_table_that_moves_a_running_ring() {
    let mut bench = Bench::running();
    let moved = RegionSpec { guest: GUEST + LEN, ..region() };
    let result = grant(&mut bench, &[moved]);
    assert_fault(&mut bench, result, &["SET_MEM_TABLE", "queue 0", "while it runs"]);
}

#[test]
fn hostile_change_of_memory_is_all_or_nothing() {
    let mut bench = Bench::new();
    let good = RegionSpec { guest: 0, user: 0, ..region() };
    let bad = RegionSpec { len: LEN + 1, ..region() };
    let result = grant(&mut bench, &[good, bad]);
    assert_fault(&mut bench, result, &["region at guest address 0x100000"]);
    assert_eq!(bench.events, [], "no map was ever in place");
}
