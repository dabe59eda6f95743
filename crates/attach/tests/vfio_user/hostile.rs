//! Messages of every wrong kind, and frontends that do not behave.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use causeway_attach::Event;
use causeway_attach::limits::CONTROL_BURST_NS;
use causeway_attach::native::{VfioUserClient, VfioUserError};
use causeway_attach::vfio_user::message::{Header, RegionAccess, command};
use causeway_testing::wait::patient;

use crate::bench::{Bench, PAGE, event, has_thread, map, memory, send_bytes, wait_for};

const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Sends a command and returns the errno of its refusal.
fn refusal(
    client: &mut VfioUserClient,
    command: u16,
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> i32 {
    match client.request(command, payload, fds) {
        Err(VfioUserError::Refused { errno, command: refused }) if refused == command => errno,
        other => panic!("command {command} was not refused: {other:?}"),
    }
}

/// Sends a header and a payload, and returns the error that ended the attachment.
fn ending(bench: &mut Bench, header: &Header, payload: &[u8]) -> String {
    let client = bench.client();
    send_bytes(&client, &[header.emit().as_slice(), payload].concat(), &[]);
    let error = bench.wait_error();
    drop(client);
    error
}

#[test]
fn hostile_vfio_user_unknown_commands_are_drained_and_refused() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let unknown = [
        command::DEVICE_GET_REGION_IO_FDS,
        command::DMA_READ,
        command::DMA_WRITE,
        command::REGION_WRITE_MULTI,
        command::DEVICE_FEATURE,
        0,
        14,
        17,
        u16::MAX,
    ];
    for code in unknown {
        assert_eq!(refusal(&mut client, code, &[0xaa; 65_552], &[]), EOPNOTSUPP);
        assert_eq!(refusal(&mut client, code, &[], &[]), EOPNOTSUPP);
    }
    client.device_info().unwrap();
}

#[test]
fn hostile_vfio_user_payloads_of_wrong_length_are_refused() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let commands = [
        (command::DMA_MAP, 32),
        (command::DMA_UNMAP, 24),
        (command::DEVICE_GET_INFO, 16),
        (command::DEVICE_GET_REGION_INFO, 32),
        (command::DEVICE_GET_IRQ_INFO, 16),
        (command::DEVICE_SET_IRQS, 20),
        (command::REGION_READ, 16),
        (command::REGION_WRITE, 16),
    ];
    for (code, len) in commands {
        for short in 0..len {
            assert_eq!(refusal(&mut client, code, &vec![0; short], &[]), EINVAL, "{code} {short}");
        }
    }
    let access = RegionAccess { offset: 0, region: 0, count: 4 }.emit();
    let with = |more: &[u8]| [access.as_slice(), more].concat();
    assert_eq!(refusal(&mut client, command::REGION_WRITE, &with(&[0; 3]), &[]), EINVAL);
    assert_eq!(refusal(&mut client, command::REGION_WRITE, &with(&[0; 5]), &[]), EINVAL);
    assert_eq!(refusal(&mut client, command::REGION_READ, &with(&[0; 4]), &[]), EINVAL);
    let long = RegionAccess { offset: 0, region: 0, count: u32::MAX }.emit();
    assert_eq!(refusal(&mut client, command::REGION_READ, &long, &[]), EINVAL);
    assert_eq!(refusal(&mut client, command::DEVICE_RESET, &[0], &[]), EINVAL);
    assert_eq!(refusal(&mut client, command::DMA_MAP, &[0; 33], &[]), EINVAL);
    client.device_info().unwrap();
}

#[test]
fn hostile_vfio_user_version_text_is_refused() {
    let texts: [&[u8]; 8] = [
        b"{",
        b"{}",
        b"garbage\0",
        b"{\"a\":1\0",
        b"{\0}\0",
        b"\xff\xfe{}\0",
        b"{\"capabilities\":{\"max_msg_fds\":1}}",
        &[b'{'; 5000],
    ];
    let mut bench = Bench::new();
    let mut client = VfioUserClient::without_version(bench.socket());
    for text in texts {
        let payload = [&[0, 0, 0, 0], text].concat();
        assert_eq!(refusal(&mut client, command::VERSION, &payload, &[]), EINVAL);
    }
    assert_eq!(refusal(&mut client, command::VERSION, &[1, 0, 0, 0], &[]), EINVAL, "major 1");
    assert_eq!(refusal(&mut client, command::VERSION, &[0, 0, 0], &[]), EINVAL);
    let early = refusal(&mut client, command::DEVICE_GET_INFO, &[0; 16], &[]);
    assert_eq!(early, EINVAL, "before the version");
    client.request(command::VERSION, b"\0\0\0\0{}\0", &[]).unwrap();
    assert_eq!(refusal(&mut client, command::VERSION, b"\0\0\0\0{}\0", &[]), EINVAL, "again");
    client.device_info().unwrap();
}

#[test]
fn hostile_vfio_user_sizes_of_headers_end_the_conversation() {
    for size in [0, 15, 16 + 65_536 + 17, u32::MAX] {
        let mut bench = Bench::new();
        let header = Header { size, ..Header::command(1, command::DEVICE_GET_INFO, 0) };
        let error = ending(&mut bench, &header, &[0; 64]);
        assert!(error.contains(&format!("{size} bytes")), "{error}");
        assert!(bench.handle.map().is_empty());
    }
}

#[test]
fn hostile_vfio_user_replies_without_a_request_end_the_conversation() {
    for flags in [1, 2, 0xf, 0x21] {
        let mut bench = Bench::new();
        let header = Header { flags, ..Header::command(1, command::DMA_READ, 0) };
        let error = ending(&mut bench, &header, &[]);
        assert!(error.contains("type"), "{error}");
    }
}

#[test]
fn hostile_vfio_user_truncated_message_ends_the_conversation() {
    let mut bench = Bench::new();
    let file = memory(PAGE);
    let mut client = bench.client();
    client.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
    let header = Header::command(1, command::DEVICE_GET_INFO, 16).emit();
    send_bytes(&client, &[header.as_slice(), &[0; 15]].concat(), &[]);
    drop(client);
    let error = bench.wait_error();
    assert!(error.contains("middle of a message"), "{error}");
    assert!(bench.handle.map().is_empty(), "grants are released");
}

#[test]
fn vfio_user_messages_may_arrive_byte_by_byte() {
    let mut bench = Bench::new();
    let client = bench.client();
    let header = Header::command(7, command::DEVICE_GET_INFO, 16).emit();
    for byte in [header.as_slice(), &[0; 16]].concat() {
        send_bytes(&client, &[byte], &[]);
        std::thread::sleep(Duration::from_micros(200));
    }
    let mut reply = [0; 32];
    let mut have = 0;
    while have < 32 {
        have += rustix::io::read(&client, &mut reply[have..]).unwrap();
    }
    assert_eq!(reply[..4], [7, 0, 4, 0]);
}

#[test]
fn hostile_vfio_user_descriptors_are_refused() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let (file, signal) = (memory(PAGE), event());
    let payload = map(0, 0, 1).emit();
    let odd: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let cases: [&[BorrowedFd<'_>]; 4] = [
        &[file.as_fd(), file.as_fd()],
        &[signal.as_fd()],
        &[odd.as_fd()],
        &[file.as_fd(), odd.as_fd()],
    ];
    for fds in cases {
        assert_eq!(refusal(&mut client, command::DMA_MAP, &payload, fds), EINVAL);
    }
    let fd = [file.as_fd()];
    assert_eq!(refusal(&mut client, command::DEVICE_GET_INFO, &[0; 16], &fd), EINVAL);
    assert_eq!(refusal(&mut client, command::DEVICE_RESET, &[], &fd), EINVAL);
    assert!(bench.handle.map().is_empty());
    client.device_info().unwrap();
    let many: Vec<BorrowedFd<'_>> = (0..9).map(|_| signal.as_fd()).collect();
    send_bytes(&client, &Header::command(1, command::DEVICE_RESET, 0).emit(), &many);
    assert!(bench.wait_error().contains("more than 8"));
}

#[test]
fn hostile_vfio_user_frontend_that_reads_no_replies_loses_its_attachment() {
    let mut bench = Bench::named("unread1");
    let client = bench.client();
    let access = RegionAccess { offset: 0, region: 0, count: 0x10000 }.emit();
    let message = [Header::command(1, command::REGION_READ, 16).emit(), access].concat();
    let since = Instant::now();
    for _ in 0..64 {
        send_bytes(&client, &message, &[]);
    }
    let error = bench.wait_error();
    assert!(error.contains("does not read"), "{error}");
    assert!(since.elapsed() < patient(Duration::from_secs(10)));
    wait_for("the end of the thread", || !has_thread("vfio-unread1"));
}

#[test]
fn vfio_user_slow_reader_gets_all_replies() {
    let mut bench = Bench::new();
    let client = bench.client();
    let access = RegionAccess { offset: 0, region: 0, count: 0x10000 }.emit();
    let message = [Header::command(1, command::REGION_READ, 16).emit(), access].concat();
    for _ in 0..8 {
        send_bytes(&client, &message, &[]);
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut left = 8 * (16 + 16 + 0x10000);
    let mut buffer = vec![0; 0x8000];
    while left > 0 {
        left -= rustix::io::read(&client, &mut buffer[..]).unwrap();
    }
    drop(client);
    bench.wait_event(Event::Closed);
}

#[test]
fn hostile_vfio_user_attachment_dropped_while_replies_stall_ends_at_once() {
    let mut bench = Bench::named("stall1");
    let client = bench.client();
    let access = RegionAccess { offset: 0, region: 0, count: 0x10000 }.emit();
    let message = [Header::command(1, command::REGION_READ, 16).emit(), access].concat();
    for _ in 0..16 {
        send_bytes(&client, &message, &[]);
    }
    std::thread::sleep(Duration::from_millis(100));
    let since = Instant::now();
    bench.stop();
    wait_for("the end of the thread", || !has_thread("vfio-stall1"));
    assert!(since.elapsed() < patient(Duration::from_secs(1)), "{:?}", since.elapsed());
}

/// Returns the processor time of the thread with this name, in nanoseconds.
fn thread_cpu_ns(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_named = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let path = tasks.map(|task| task.path()).find(|path| is_named(path)).unwrap();
    let times = std::fs::read_to_string(path.join("schedstat")).unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn hostile_vfio_user_flood_uses_half_a_processor_and_is_still_answered() {
    let mut bench = Bench::named("flood1");
    let mut client = bench.client();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(4) {
        client.write_posted(0, 0x18, &[1; 4]).unwrap();
    }
    let (used_ns, passed) = (thread_cpu_ns("vfio-flood1"), since.elapsed());
    let limit = Duration::from_nanos(CONTROL_BURST_NS) + passed / 2 + Duration::from_millis(200);
    println!("{used_ns} ns of processor time in {passed:?}");
    assert!(Duration::from_nanos(used_ns) < limit, "{used_ns} ns in {passed:?}");
    let since = Instant::now();
    client.device_info().unwrap();
    assert!(since.elapsed() < patient(Duration::from_secs(2)), "{:?}", since.elapsed());
    bench.wait_event(Event::Doorbell(0));
}

#[test]
fn hostile_vfio_user_files_in_turn_leave_no_mappings() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    for _ in 0..300 {
        let file = memory(PAGE);
        client.map(&map(0, 0, 1), Some(file.as_fd())).unwrap();
        client.unmap(0, PAGE).unwrap();
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let left = maps.lines().filter(|line| line.contains("memfd:guest")).count();
    assert!(left < 200, "{left} mappings of files are left");
}

#[test]
fn hostile_vfio_user_file_that_shrinks_poisons_its_epoch_only() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::memfd_create("shrinks", flags).unwrap();
    rustix::fs::ftruncate(&file, 4 * PAGE).unwrap();
    client.map(&map(0, 0, 4), Some(file.as_fd())).unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    let guest = bench.handle.map();
    let _ = guest.write(0, b"lost");
    assert!(guest.is_poisoned());
    drop(guest);
    client.unmap_all().unwrap();
    assert!(!bench.handle.map().is_poisoned());
}

#[test]
fn hostile_vfio_user_random_messages_do_no_harm() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let file = memory(16 * PAGE);
    let signal = event();
    for _ in 0..40 {
        let mut bench = Bench::new();
        let mut client = bench.client();
        for _ in 0..100 {
            let code = u16::try_from(random() % 18).unwrap();
            let len = usize::try_from(random() % 48).unwrap();
            // Most bytes are small, so that many fields are valid.
            let byte = |value: u64| if value & 7 == 0 { value.to_le_bytes()[1] } else { 0 };
            let payload: Vec<u8> = (0..len).map(|_| byte(random())).collect();
            let fds: &[BorrowedFd<'_>] = match random() % 4 {
                0 => &[file.as_fd()],
                1 => &[signal.as_fd()],
                _ => &[],
            };
            match client.request(code, &payload, fds) {
                Ok(_) | Err(VfioUserError::Refused { .. }) => {}
                Err(error) => panic!("{error} {:?}", bench.seen),
            }
        }
        client.device_info().unwrap();
    }
}
