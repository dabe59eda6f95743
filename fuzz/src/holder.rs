//! The holder: what causewayd may say to it, and what it says again to the next causewayd.

use std::os::fd::AsFd;

use causeway_attach::Server;
use causeway_attach::vhost_user::message::{Header, Message};
use causeway_attach::vhost_user::stream::{MessageStream, ReadOutcome};
use causeway_holder::protocol::{Answer, ProtocolError, Request, receive, send};
use causeway_holder::record::Record;
use causeway_host::ReceivedFd;
use rustix::net::{RecvFlags, SendFlags, SocketType};

use crate::Input;
use crate::frontend::{Purse, message, model, pair};
use crate::ground;

/// Packets, a zero byte between them: each is refused, or is a request that is the same when it
/// is said again.
pub fn control(data: &[u8]) {
    let (ours, theirs) = pair(SocketType::SEQPACKET);
    for packet in data.split(|&byte| byte == 0).filter(|packet| !packet.is_empty()) {
        let sent = rustix::net::send(&ours, packet, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(packet.len()));
        // Either side's words may come from the other.
        let answered: Result<Answer, _> = receive(&theirs, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        let asked: Result<Request, ProtocolError> = receive(&theirs, RecvFlags::DONTWAIT);
        if let Ok(request) = asked {
            send(&ours, &request).expect("it was short enough");
            let again: Request = receive(&theirs, RecvFlags::DONTWAIT).expect("it was sent");
            assert_eq!(again, request);
        }
        if let Ok(answer) = answered {
            send(&theirs, &answer).expect("it was short enough");
            let again: Answer = receive(&ours, RecvFlags::DONTWAIT).expect("it was sent");
            assert_eq!(again, answer);
        }
    }
}

/// Everything that is said.
pub fn control_seeds() -> Vec<Vec<u8>> {
    let all = [
        r#"{"hello":{"version":1,"pid":7}}"#,
        r#"{"add":{"name":"v","public":"/p","inner":"/i","queues":3,"ring_size":1024,"device":"vsock 3"}}"#,
        r#"{"delete":{"name":"v"}}"#,
        r#""synced""#,
        r#""let_go""#,
        r#""done""#,
        r#"{"refused":"because"}"#,
    ];
    vec![all.join("\0").into_bytes()]
}

/// A frontend's messages, those that a backend took being noted: the record never has more queues
/// or regions than any device, and says what the device says.
pub fn record(data: &[u8]) {
    ground::with::<{ 64 << 10 }>(|ground| {
        let purse = Purse::new(ground);
        let (ours, theirs) = pair(SocketType::STREAM);
        let mut peer = MessageStream::new(ours);
        let mut server = Server::new(model(), theirs);
        let mut record = Record::default();
        let mut input = Input::new(data);
        // As the holder has it: every message is acknowledged.
        let all = model().protocol_offered().bits().to_ne_bytes();
        say(&mut peer, &mut server, 16, &all, &[]).expect("what was offered");
        for _ in 0..64 {
            if input.is_empty() {
                break;
            }
            let (code, payload, fds, memory) = message(&mut input, &purse, ground.len());
            if code == 16 {
                continue;
            }
            let fds: Vec<_> = (0..fds).map(|_| purse.pick(&mut input, memory)).collect();
            let Some(answer) = say(&mut peer, &mut server, code, &payload, &fds) else { break };
            note(&mut record, code, &payload, &fds, &answer);
            compare(&record, &server);
        }
    });
}

/// Says one message, and gives the answer's payload; none when the conversation is over.
fn say(
    peer: &mut MessageStream,
    server: &mut Server,
    code: u32,
    payload: &[u8],
    fds: &[std::os::fd::BorrowedFd<'_>],
) -> Option<Vec<u8>> {
    let header = Header { code, flags: 9, size: payload.len() as u32 };
    peer.send(header, payload, fds).expect("room for one message");
    server.receive(&mut Vec::new()).ok()?;
    match peer.receive() {
        Ok(ReadOutcome::Message(raw)) => Some(raw.payload),
        _ => None,
    }
}

fn note(
    record: &mut Record,
    code: u32,
    payload: &[u8],
    fds: &[std::os::fd::BorrowedFd<'_>],
    answer: &[u8],
) {
    let Ok(request) = causeway_attach::vhost_user::FrontendReq::try_from(code) else { return };
    let owned = || fds.iter().map(|fd| fd.as_fd().try_clone_to_owned().expect("a descriptor"));
    if code == 11 {
        let stands = Message::decode_ring_value(request, answer).expect("our own answer");
        record.stopped(stands);
    } else if !causeway_holder::inner::expects_reply(request)
        && matches!(Message::decode_number(request, answer), Ok(0))
    {
        let message = Message::decode(request, payload, owned().map(ReceivedFd::new).collect());
        record.note(message.expect("it was taken"));
    }
}

fn compare(record: &Record, server: &Server) {
    let device = server.device();
    let mut noted: Vec<_> =
        record.regions().map(|(spec, _)| (spec.guest, spec.len, spec.user)).collect();
    let mut granted: Vec<_> =
        device.map.regions().iter().map(|one| (one.guest, one.len(), one.user)).collect();
    noted.sort_unstable();
    granted.sort_unstable();
    assert_eq!(noted, granted, "regions");
    assert!(record.rings.len() <= causeway_attach::limits::QUEUES_MAX);
    for (index, ring) in record.rings.iter().enumerate() {
        let Some(queue) = device.queues.get(index) else { continue };
        assert_eq!(ring.kick.is_some(), queue.is_started(), "queue {index} is started");
        if ring.size.is_some() {
            assert_eq!(ring.size, queue.size().map(u32::from), "size of queue {index}");
        }
    }
}

/// A set-up as frontends do it.
pub fn record_seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packed in [0_u8, 1] {
        let mut story = vec![2, 0, 0, 1, 0, packed, 4, 0, 0, 5, 15, 30, 1, 6];
        for queue in 0..2 {
            story.extend([7, queue, 5, 9, queue, 1, 8, queue, 1, 12, queue, 1, 15]);
            story.extend([11, queue, 1, 15, 17, queue, 0]);
        }
        story.extend([10, 0, 0, 38, 0, 0, 33, 0, 0]);
        all.push(story);
    }
    all
}
