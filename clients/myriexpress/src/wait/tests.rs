//! Wake-ups between threads of an endpoint. The test acts as the daemon.

use std::os::unix::net::UnixStream;
use std::thread;

use causeway_attach::local::LocalAttachment;
use causeway_message::library::{ProgressStep, Transport, TransportError};
use causeway_message::split::{Address, NicId, Token};
use causeway_wire::local::{ClientMessage, DaemonMessage, Name, VERSION};

use super::*;
use crate::abi::CallerPtr;
use crate::endpoint::OpenParams;
use crate::memory::MessageSegments;
use causeway_endpoint::nic::Conversation;
use causeway_endpoint::waiter::Awaited;

/// Much shorter than a sleep, and longer than any other operation.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns an endpoint, and the daemon's end of its connection.
fn open() -> (*mut c_void, LocalAttachment) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let daemon = thread::spawn(move || {
        let mut daemon = LocalAttachment::new(theirs.into());
        for tell in [
            DaemonMessage::Welcome {
                version: VERSION,
                nic: 7,
                host: [0; 16],
                name: Name::new("t").unwrap(),
            },
            DaemonMessage::Opened { tag: 0, code: 0, session: 9, endpoint: 1, bypass: 0 },
        ] {
            let since = Instant::now();
            while daemon.receive().unwrap().is_none() {
                assert!(since.elapsed() < PATIENCE);
                thread::yield_now();
            }
            daemon.send(tell.emit(), Vec::new()).unwrap();
        }
        daemon
    });
    let opened = table::insert(|own, room| {
        let conversation = Conversation::over(ours, 0)?;
        MxEndpoint::open_over(conversation, (own, room), 0, 1, OpenParams::default())
    });
    (opened.unwrap(), daemon.join().unwrap())
}

fn way(endpoint: &mut MxEndpoint) -> &mut dyn Transport<MessageSegments> {
    &mut endpoint.core.paths
}

/// Requests a connect, which is not answered yet.
fn connect(endpoint: &mut MxEndpoint) {
    let to = Address { nic: NicId(8), endpoint: 1 };
    way(endpoint).connect(Token(0), to, 1, None).unwrap();
}

/// Sends the answer to the connect.
fn refuse(daemon: &mut LocalAttachment) {
    let refused = DaemonMessage::Refused { endpoint: 1, status: 12, token: 0 };
    daemon.send(refused.emit(), Vec::new()).unwrap();
}

#[test]
fn wait_does_not_sleep_after_a_timeout() {
    let (handle, _daemon) = open();
    let mut locked = table::lock(handle).unwrap();
    let endpoint = locked.endpoint();
    endpoint.core.update_time();
    // SAFETY: no segment is read from a NULL list without segments.
    let none = unsafe { CallerPtr::new(std::ptr::null_mut()) };
    let nothing = endpoint.mapped.segments(none, 0, true).unwrap();
    let (library, way) = (&mut endpoint.core.library, &mut endpoint.core.paths);
    let id = library.irecv(way, 1, u64::MAX, 0, nothing).unwrap();
    library.set_timeout(Some(id), Some(1)).unwrap();
    thread::sleep(Duration::from_millis(1));
    let since = Instant::now();
    let mut locked = lead(locked, SLEEP_MAX).unwrap();
    assert!(since.elapsed() < PATIENCE);
    assert_eq!(locked.endpoint().core.library.deadline(), None, "the request has ended");
}

#[test]
fn wait_progress_by_another_thread_wakes_the_sleeper() {
    let (handle, mut daemon) = open();
    let mut locked = table::lock(handle).unwrap();
    let endpoint = locked.endpoint();
    connect(endpoint);
    refuse(&mut daemon);
    endpoint.has_leader = true;
    assert!(!endpoint.core.waiter.is_rung());
    let since = Instant::now();
    while endpoint.core.paths.connecting() {
        assert!(since.elapsed() < PATIENCE);
        endpoint.step();
    }
    assert!(endpoint.core.waiter.is_rung(), "the sleeping thread would miss the event");
}

#[test]
fn wait_does_not_sleep_between_an_answer_and_the_next_poll() {
    let (handle, mut daemon) = open();
    let mut locked = table::lock(handle).unwrap();
    let core = &mut locked.endpoint().core;
    assert!(core.arm());
    core.paths.disarm();
    let wake = DaemonMessage::Wake { endpoint: 1 };
    daemon.send(wake.emit(), Vec::new()).unwrap();
    // A step reads the message in its rare checks, which come after its poll.
    let since = Instant::now();
    while core.step() != (ProgressStep::Idle, true) {
        assert!(since.elapsed() < PATIENCE);
    }
    assert!(!core.arm(), "the daemon wakes nobody for that message again");
    core.paths.disarm();
    assert_eq!(core.step(), (ProgressStep::Idle, false));
    assert!(core.arm());
    core.paths.disarm();
}

#[test]
fn many_connects_wait_until_others_are_answered() {
    let (handle, mut daemon) = open();
    let mut locked = table::lock(handle).unwrap();
    let endpoint = locked.endpoint();
    let to = Address { nic: NicId(8), endpoint: 1 };
    let mut asked = 0;
    while way(endpoint).connect(Token(asked), to, 1, None).is_ok() {
        asked += 1;
        assert!(asked < 10_000, "the daemon must refuse before it stops reading");
    }
    assert_eq!(way(endpoint).connect(Token(asked), to, 1, None), Err(TransportError::Full));
    refuse(&mut daemon);
    let since = Instant::now();
    while !endpoint.core.paths.hear() {
        assert!(since.elapsed() < PATIENCE);
    }
    assert!(way(endpoint).connect(Token(asked), to, 1, None).is_ok());
}

#[test]
fn wait_follower_rings_the_leader() {
    let (handle, _daemon) = open();
    let mut locked = table::lock(handle).unwrap();
    let endpoint = locked.endpoint();
    endpoint.has_leader = true;
    let (room, handle) = (locked.room(), handle.addr());
    let release = thread::spawn(move || {
        let since = Instant::now();
        loop {
            let mut locked = table::lock(std::ptr::without_provenance_mut(handle)).unwrap();
            if locked.endpoint().followers > 0 {
                break room.call(1);
            }
            assert!(since.elapsed() < PATIENCE);
        }
    });
    let mut locked = sleep(locked, WaitLimit::Endless).unwrap();
    release.join().unwrap();
    assert!(
        locked.endpoint().core.waiter.is_rung(),
        "the leader must learn what the follower waits for"
    );
}

#[test]
fn wait_sends_requests_that_found_no_room() {
    let (handle, mut daemon) = open();
    let mut locked = table::lock(handle).unwrap();
    let conversation = &mut locked.endpoint().core.paths.conversation;
    let mut asked = 0_u32;
    while conversation.awaited() == Awaited::Words {
        conversation.ask(ClientMessage::Close { endpoint: 9 }).unwrap();
        asked += 1;
    }
    conversation.ask(ClientMessage::Close { endpoint: 9 }).unwrap();
    assert_eq!(conversation.awaited(), Awaited::Room);
    let reads = thread::spawn(move || {
        let since = Instant::now();
        let mut heard = 0;
        while heard <= asked {
            heard += u32::from(daemon.receive().unwrap().is_some());
            assert!(since.elapsed() < PATIENCE, "{heard} of {asked} requests are sent");
        }
        daemon
    });
    let since = Instant::now();
    while locked.endpoint().core.paths.awaited() != Awaited::Words {
        locked = lead(locked, SLEEP_MAX).unwrap();
        assert!(since.elapsed() < PATIENCE);
    }
    drop(reads.join().unwrap());
}
