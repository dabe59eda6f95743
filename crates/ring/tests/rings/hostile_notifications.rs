//! Tests of frontends that try to block the thread that notifies them.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use causeway_host::Watchdog;
use causeway_ring::{DoorbellError, Notifier};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Returns the frontend's descriptor of an eventfd, and the received descriptor.
fn shared() -> (OwnedFd, OwnedFd) {
    let theirs = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let ours = theirs.try_clone().unwrap();
    (theirs, ours)
}

fn take_nonblock_back(fd: &OwnedFd) {
    let flags = fcntl_getfl(fd).unwrap();
    fcntl_setfl(fd, flags - OFlags::NONBLOCK).unwrap();
}

fn fill(fd: &OwnedFd) {
    rustix::io::write(fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
}

/// Returns the result of `call` on its own thread; `release` ends a call that blocks.
fn in_time<T: Send>(call: impl FnOnce() -> T + Send, release: impl FnOnce()) -> T {
    thread::scope(|scope| {
        let (done, result) = channel();
        scope.spawn(move || done.send(call()));
        match result.recv_timeout(Duration::from_secs(30)) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => panic!("the call panicked"),
            Err(RecvTimeoutError::Timeout) => {
                release();
                panic!("held up for ever");
            }
        }
    })
}

fn drain(fd: &OwnedFd) {
    rustix::io::read(fd, &mut [0_u8; 8]).unwrap();
}

#[test]
fn hostile_eventfd_made_blocking_and_full() {
    let (theirs, ours) = shared();
    let notifier = Notifier::new(ours).unwrap();
    take_nonblock_back(&theirs);
    let call = || {
        let _rescue = Watchdog::new().unwrap();
        assert_eq!(notifier.notify(), Ok(()), "room for it: no reason to complain");
        drain(&theirs);
        fill(&theirs);
        assert_eq!(notifier.notify(), Err(DoorbellError::Blocked));
        assert!(notifier.is_blocked());
        // A blocked notifier is disabled.
        assert_eq!(notifier.notify(), Err(DoorbellError::Blocked));
        // Other notifiers are not affected.
        let (other, ours) = shared();
        let good = Notifier::new(ours).unwrap();
        assert_eq!(good.notify(), Ok(()));
        drain(&other);
        fill(&other);
        assert_eq!(good.notify(), Ok(()), "full, but it does not block");
        take_nonblock_back(&other);
        assert_eq!(good.notify(), Err(DoorbellError::Blocked), "freed a second time");
    };
    in_time(call, || drain(&theirs));
}

#[test]
fn hostile_eventfds_of_two_threads_at_a_time() {
    let pairs: Vec<_> = (0..2).map(|_| shared()).collect();
    let (theirs, ours): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let calls = || {
        thread::scope(|scope| {
            for (theirs, ours) in theirs.iter().zip(ours) {
                scope.spawn(move || {
                    let _rescue = Watchdog::new().unwrap();
                    let notifier = Notifier::new(ours).unwrap();
                    fill(theirs);
                    take_nonblock_back(theirs);
                    assert_eq!(notifier.notify(), Err(DoorbellError::Blocked));
                });
            }
        });
    };
    in_time(calls, || theirs.iter().for_each(drain));
}

#[test]
fn hostile_stream_without_reader_does_not_block() {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (theirs, ours) = pair.unwrap();
    let notifier = Notifier::new(ours.try_clone().unwrap()).unwrap();
    take_nonblock_back(&ours);
    let call = || (0..1_000_000).for_each(|_| notifier.notify().unwrap());
    in_time(call, || drop(theirs));
    // A closed stream raises no signal.
    notifier.notify().unwrap();
}

#[test]
fn hostile_notifiers_that_could_block() {
    let (_, pipe) = std::io::pipe().unwrap();
    let datagrams = std::os::unix::net::UnixDatagram::pair().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/dev/zero").unwrap();
    let all: [OwnedFd; 4] = [pipe.into(), datagrams.0.into(), tcp.into(), file.into()];
    for fd in all {
        assert_eq!(Notifier::new(fd).unwrap_err(), DoorbellError::NotAnEventfd);
    }
}

/// Unread content of a notifier, for example descriptors, would be closed with it.
#[test]
fn hostile_stream_with_unread_bytes_is_refused() {
    let (mut theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut theirs, b"x").unwrap();
    assert_eq!(Notifier::new(OwnedFd::from(ours)).unwrap_err(), DoorbellError::Unread);
    let (mut theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
    let notifier = Notifier::new(OwnedFd::from(ours)).unwrap();
    assert!(std::io::Write::write_all(&mut theirs, b"x").is_err(), "nothing can be put there");
    notifier.notify().unwrap();
    std::io::Read::read_exact(&mut theirs, &mut [0; 8]).unwrap();
}

#[test]
fn watchdog_ends_with_its_thread_and_disturbs_no_other() {
    for _ in 0..20 {
        let (theirs, ours) = shared();
        let rescue = Watchdog::new().unwrap();
        let notifier = Notifier::new(ours).unwrap();
        for _ in 0..1000 {
            notifier.notify().unwrap();
        }
        drop(rescue);
        drain(&theirs);
    }
    let names = std::fs::read_dir("/proc/self/task").unwrap();
    let watchers = names
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("causeway-rescue"))
        .count();
    // Watchdogs of concurrent tests count too.
    assert!(watchers <= 5, "{watchers} watchers are left");
}
