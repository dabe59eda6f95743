//! Sleeps of an endpoint with rings. The tests act as the daemon.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use causeway_attach::local::LocalAttachment;
use causeway_message::library::{Purpose, Staging as _, TransportError};
use causeway_mxoe::driver::EndpointIo;
use causeway_wire::local::{DaemonMessage, Name, VERSION};
use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// Longer than any operation of these tests.
const PATIENCE: Duration = Duration::from_secs(20);
const OWN: u8 = 1;

/// Returns the files that the daemon gives to an endpoint: rings and a doorbell.
fn ring_files() -> Vec<OwnedFd> {
    let (_, file) = EndpointIo::new(()).unwrap();
    vec![file, eventfd(0, EventfdFlags::CLOEXEC).unwrap()]
}

/// Returns the paths of an endpoint with rings, and the daemon's end of its connection.
fn open() -> (Paths, LocalAttachment) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let welcomes = thread::spawn(move || {
        let mut daemon = LocalAttachment::new(theirs.into());
        let name = Name::new("t").unwrap();
        let welcome = DaemonMessage::Welcome { version: VERSION, nic: 7, host: [0; 16], name };
        daemon.send(welcome.emit(), Vec::new()).unwrap();
        daemon
    });
    let conversation = Conversation::over(ours, 0).unwrap();
    let daemon = welcomes.join().unwrap();
    (Paths::new(OWN, None, conversation, Attached::Files(ring_files())).unwrap(), daemon)
}

fn staging(paths: &mut Paths) -> &mut StagingSlabs {
    &mut paths.rings.as_mut().unwrap().staging
}

/// Returns the tag of the request for staging, which the daemon has received.
fn asked_tag(daemon: &mut LocalAttachment) -> u32 {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let Some(message) = daemon.receive().unwrap() else { continue };
        if let Ok(ClientMessage::Region { tag, .. }) = ClientMessage::parse(&message.bytes) {
            return tag;
        }
    }
    panic!("no request for staging");
}

/// Polls as the matching engine does.
fn poll(paths: &mut Paths) {
    let paths: &mut dyn Transport<Vec<u8>> = paths;
    assert!(paths.next().is_none());
}

/// Returns whether the thread may sleep.
fn may_sleep(paths: &mut Paths) -> bool {
    let idle = paths.arm();
    paths.disarm();
    idle
}

#[test]
fn paths_do_not_sleep_between_an_answer_about_staging_and_the_next_poll() {
    for code in [0, 15] {
        let (mut paths, mut daemon) = open();
        let window = staging(&mut paths).take(100_000, Purpose::Offer);
        assert_eq!(window, Err(TransportError::Full));
        poll(&mut paths);
        assert!(may_sleep(&mut paths), "the answer will wake the thread");
        // The rare checks read the answer, and the thread sleeps without another poll.
        let tag = asked_tag(&mut daemon);
        let answer = DaemonMessage::Region { tag, code, endpoint: OWN, region: 3 };
        daemon.send(answer.emit(), Vec::new()).unwrap();
        let since = Instant::now();
        while !paths.hear() {
            assert!(since.elapsed() < PATIENCE);
        }
        assert!(!staging(&mut paths).awaits_answer());
        assert!(!may_sleep(&mut paths), "nothing would wake the thread");
        poll(&mut paths);
        assert!(may_sleep(&mut paths));
    }
}

#[test]
fn paths_sleep_on_the_rings_of_the_next_daemon() {
    let (mut paths, _daemon) = open();
    // The old rings were in use when the next daemon answered.
    paths.accept_rings(Attached::Files(ring_files()));
    paths.rings.as_mut().unwrap().end();
    assert!(may_sleep(&mut paths));
    assert!(!paths.rings.as_ref().unwrap().has_ended(), "no event of the new rings would arrive");
}
