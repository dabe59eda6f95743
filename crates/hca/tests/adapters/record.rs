//! Records of held ports: kept within the memory of the host, and continued for their guest only.
//!
//! Each test runs in a process of its own, on a small tmpfs in a mount namespace.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use causeway_model::port::HcaSpec;
use causeway_wire::mlx5::command::{InputHeader, Opcode};

use crate::rig::{Guest, Rig, Stream, options};

/// Environment variable of the process inside the namespace: the folder of the tmpfs.
const INSIDE: &str = "CAUSEWAY_TMPFS";
/// Length of the tmpfs.
const TMPFS_BYTES: u64 = 3 << 20;

/// Runs `act` with the folder of a tmpfs of [`TMPFS_BYTES`], as test `test` of another process.
pub fn on_tmpfs(test: &str, act: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return act(Path::new(&dir));
    }
    let dir = causeway_testing::folder::Folder::new("tmpfs");
    let script = format!(
        "mount -t tmpfs -o size={TMPFS_BYTES} none {} && echo mounted && \
         exec \"$0\" --exact {test} --nocapture",
        dir.path().display()
    );
    let mut process = std::process::Command::new("unshare");
    process.args(["-m", "-r", "sh", "-c", &script]).arg(std::env::current_exe().unwrap());
    let output = process.env(INSIDE, dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains("mounted") {
        println!("skipped: this host makes no mount namespaces for this user");
        return;
    }
    print!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"));
}

/// Returns options with room for many regions.
fn large(n: u8) -> HcaSpec {
    HcaSpec { regions_max: 4096, registered_max: 65_536, ..options(n) }
}

/// Returns whether the file of port `n` has a record.
fn is_valid(rig: &Rig, n: u8) -> bool {
    std::fs::read(rig.record(n)).unwrap().get(..8).is_some_and(|magic| magic == b"cw-hca-r")
}

fn allocated(rig: &Rig, n: u8) -> u64 {
    std::fs::metadata(rig.record(n)).unwrap().blocks() * 512
}

/// Registers memory until the record is given up. Returns the number of regions.
fn fill(rig: &mut Rig, n: u8, guest: &mut Guest) -> u32 {
    for count in 0.. {
        if rig.counter(n, "record_losses_total") > 0 {
            return count;
        }
        assert!(count < 1000, "the record is never given up");
        let len = guest.driver.memory().len();
        guest.with(rig, |driver, bar| driver.register(bar, 0, 0, len / 4));
    }
    unreachable!()
}

/// Makes protection domains, each with a short journal entry.
fn make_domains(rig: &mut Rig, guest: &mut Guest, count: u32) {
    for _ in 0..count {
        guest.with(rig, |driver, bar| driver.simple(bar, Opcode::AllocateProtectionDomain, 0));
    }
}

fn write_once(rig: &mut Rig, stream: &mut Stream, guest: &Guest) {
    stream.post_write(guest, 64);
    let is_done = (0..10_000).any(|_| {
        rig.turn();
        stream.reap(guest) == 1
    });
    assert!(is_done, "no completion");
}

#[test]
fn record_continues_its_guest_and_never_another() {
    on_tmpfs("record::record_continues_its_guest_and_never_another", |dir| {
        let mut rig = Rig::held(dir);
        let (mut a, mut b) = (rig.start(1, options(1)), rig.start(2, options(2)));
        let mut stream = Stream::new(&mut rig, &mut a, &mut b);
        write_once(&mut rig, &mut stream, &a);
        drop(rig);
        let mut rig = Rig::held(dir);
        rig.resume(1, options(1), &a);
        rig.resume(2, options(2), &b);
        write_once(&mut rig, &mut stream, &a);
        let pair = stream.from.number;
        assert!(has_pair(&mut rig, &mut a, pair));
        drop(rig);
        // The holder has a new frontend at port 1 when the next process runs.
        let mut rig = Rig::held(dir);
        let other = rig.start(1, options(1));
        rig.resume(2, options(2), &b);
        drop(rig);
        let mut rig = Rig::held(dir);
        rig.resume(1, options(1), &other);
        assert!(!rig.has_failed(&other), "its own record continues");
        let mut other = other;
        assert!(!has_pair(&mut rig, &mut other, pair), "a queue pair of the earlier guest");
    });
}

/// Returns whether the function of a guest has a queue pair.
fn has_pair(rig: &mut Rig, guest: &mut Guest, pair: u32) -> bool {
    let query = InputHeader::new(Opcode::QueryQueuePair, pair).to_bytes();
    guest.try_with(rig, |driver, bar| driver.execute(bar, &query, 0x200)).is_ok()
}

#[test]
fn record_does_not_continue_for_a_frontend_that_no_process_served() {
    on_tmpfs("record::record_does_not_continue_for_a_frontend_that_no_process_served", |dir| {
        let mut rig = Rig::held(dir);
        let (mut a, mut b) = (rig.start(1, options(1)), rig.start(2, options(2)));
        let (own, peer) = {
            let stream = Stream::new(&mut rig, &mut a, &mut b);
            (stream.from.number, stream.to.number)
        };
        drop(rig);
        let mut rig = Rig::held(dir);
        rig.resume(2, options(2), &b);
        assert!(has_pair(&mut rig, &mut b, peer));
        // The memory stands for that of a guest that connected after the kill.
        rig.resume_new(1, options(1), &a);
        assert!(!rig.has_failed(&a));
        assert!(!has_pair(&mut rig, &mut a, own), "a queue pair of the earlier guest");
    });
}

#[test]
fn record_of_each_port_is_whole_or_invalid_if_the_file_system_is_full() {
    on_tmpfs("record::record_of_each_port_is_whole_or_invalid_if_the_file_system_is_full", |dir| {
        let mut rig = Rig::held(dir);
        let (mut a, mut b) = (rig.start(1, large(1)), rig.start(2, large(2)));
        assert!(fill(&mut rig, 1, &mut a) > 10);
        assert!(!is_valid(&rig, 1), "the record that was given up");
        assert!(allocated(&rig, 1) <= 32 << 10, "its memory is released");
        make_domains(&mut rig, &mut b, 20);
        assert!(is_valid(&rig, 2) && rig.counter(2, "record_losses_total") == 0);

        // The rest of the file system is used by others.
        let mut filler = File::create(dir.join("filler")).unwrap();
        let _ = std::io::copy(&mut std::io::repeat(1), &mut filler);
        make_domains(&mut rig, &mut b, 400);
        assert_eq!((is_valid(&rig, 2), rig.counter(2, "record_losses_total")), (false, 1));
        let mut c = rig.start(3, options(3));
        make_domains(&mut rig, &mut c, 1);
        assert_eq!((is_valid(&rig, 3), rig.counter(3, "record_losses_total")), (false, 1));

        // The next guest of the port has a record again.
        std::fs::remove_file(dir.join("filler")).unwrap();
        drop(filler);
        rig.leave(3);
        let mut next = rig.boot(3);
        make_domains(&mut rig, &mut next, 2);
        assert!(is_valid(&rig, 3));
        drop(rig);
        let mut rig = Rig::held(dir);
        rig.resume(1, large(1), &a);
        rig.resume(2, large(2), &b);
        rig.resume(3, options(3), &next);
        assert!(rig.has_failed(&a) && rig.has_failed(&b) && !rig.has_failed(&next));
    });
}

#[test]
fn record_releases_its_memory_with_its_guest() {
    on_tmpfs("record::record_releases_its_memory_with_its_guest", |dir| {
        let mut rig = Rig::held(dir);
        let mut a = rig.start(1, large(1));
        let begin = allocated(&rig, 1);
        for _ in 0..40 {
            let len = a.driver.memory().len();
            a.with(&mut rig, |driver, bar| driver.register(bar, 0, 0, len / 4));
        }
        assert!(allocated(&rig, 1) > begin + (256 << 10), "{begin}");
        rig.leave(1);
        assert!(allocated(&rig, 1) <= 32 << 10 && is_valid(&rig, 1));
        rig.shard.port_delete(&crate::rig::name(1)).unwrap();
        assert!(!rig.record(1).exists());
    });
}

#[test]
fn record_whose_mapping_lost_a_page_is_given_up_and_made_anew() {
    on_tmpfs("record::record_whose_mapping_lost_a_page_is_given_up_and_made_anew", |dir| {
        let mut rig = Rig::held(dir);
        let (mut a, mut b) = (rig.start(1, options(1)), rig.start(2, options(2)));
        let mut stream = Stream::new(&mut rig, &mut a, &mut b);
        let file = File::options().read(true).write(true).open(rig.record(1)).unwrap();
        let len = file.metadata().unwrap().len();
        // The words lie behind the header, which stays as it was.
        file.set_len(4096).unwrap();
        file.set_len(len).unwrap();
        assert!(is_valid(&rig, 1));
        file.set_len(4096).unwrap();
        write_once(&mut rig, &mut stream, &a);
        assert!(!is_valid(&rig, 1), "a record that does not have the last completion");
        assert_eq!(rig.counter(1, "record_losses_total"), 1);
        rig.leave(1);
        let mut next = rig.boot(1);
        make_domains(&mut rig, &mut next, 1);
        assert!(is_valid(&rig, 1));
        assert_eq!(file.metadata().unwrap().len(), len);
    });
}
