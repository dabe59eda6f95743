//! RESUME: the holder sets a device up again for a frontend that an earlier daemon served.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_attach::Event;
use causeway_attach::native::{VfioUserClient, VfioUserError};
use causeway_attach::vfio_user::message::{ResumePhase, command};
use causeway_attach::vfio_user::{DeviceDescription, Registers, VfioUserAttachment};
use causeway_host::fd::receive::UntrustedSocket;

use crate::bench::{BAR_BYTES, Bench, DOORBELL, description, memory, registers, sockets};

/// Sends RESUME and returns the errno of a refusal.
fn resume(client: &mut VfioUserClient, phase: ResumePhase) -> Option<i32> {
    match client.request(command::RESUME, &phase.emit(), &[]) {
        Ok(_) => None,
        Err(VfioUserError::Refused { errno, .. }) => Some(errno),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn vfio_user_resume_rings_no_doorbell_and_ends_when_the_event_was_handled() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(resume(&mut client, ResumePhase::Begin), None);
    client.write(0, DOORBELL, &[1]).unwrap();
    bench.seen.is_stalled.store(true, Ordering::Relaxed);
    let seen = Arc::clone(&bench.seen);
    let continues = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        assert!(seen.events.lock().unwrap().is_empty());
        seen.is_stalled.store(false, Ordering::Relaxed);
    });
    assert_eq!(resume(&mut client, ResumePhase::End), None);
    assert_eq!(bench.take_events(), [Event::Resumed]);
    continues.join().unwrap();
    client.write(0, DOORBELL, &[1]).unwrap();
    bench.wait_event(Event::Doorbell(0));
}

#[test]
fn vfio_user_resume_is_accepted_once_and_from_the_holder_only() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(resume(&mut client, ResumePhase::End), Some(22), "no beginning");
    assert_eq!(resume(&mut client, ResumePhase::Begin), None);
    assert_eq!(resume(&mut client, ResumePhase::Begin), Some(22));
    assert_eq!(resume(&mut client, ResumePhase::End), None);
    for phase in [ResumePhase::Begin, ResumePhase::BeginNew, ResumePhase::End] {
        assert_eq!(resume(&mut client, phase), Some(22), "{phase:?} after the end");
    }
    assert!(client.request(command::RESUME, &[3, 0, 0, 0], &[]).is_err());

    let (ours, theirs) = sockets();
    let bar = Arc::new(memory(BAR_BYTES));
    let of_frontend = DeviceDescription { may_resume: false, ..description(&bar) };
    let stream = UntrustedSocket::from(ours);
    let registers = registers() as Arc<dyn Registers>;
    let _attachment = VfioUserAttachment::new("frontend", stream, of_frontend, registers);
    let mut frontend = VfioUserClient::over(theirs).unwrap();
    assert_eq!(resume(&mut frontend, ResumePhase::Begin), Some(95));
}
