//! The connection holder: requests from causewayd, and the state that the holder replays to the
//! next causewayd. Targets `holder` (packets that causewayd sends to the holder) and `record` (what
//! the holder keeps of a frontend). No process of the holder runs, and no socket is passed between
//! processes.

use std::os::fd::AsFd;

use causeway_attach::Server;
use causeway_attach::vhost_user::message::{Header, Message};
use causeway_attach::vhost_user::stream::{MessageStream, ReadOutcome};
use causeway_holder::protocol::{Answer, ProtocolError, Request, receive, send};
use causeway_holder::record::Record;
use causeway_host::ReceivedFd;
use rustix::net::{RecvFlags, SendFlags, SocketType};

use crate::Input;
use crate::frontend::{DescriptorSet, message, model, pair};
use crate::guest_memory;

/// Decodes packets separated by zero bytes: each is refused, or decodes to a request or answer that
/// encodes to the same value.
pub fn control(data: &[u8]) {
    let (ours, theirs) = pair(SocketType::SEQPACKET);
    for packet in data.split(|&byte| byte == 0).filter(|packet| !packet.is_empty()) {
        let sent = rustix::net::send(&ours, packet, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(packet.len()));
        // Either side may send requests and answers.
        let answered: Result<Answer, _> = receive(&theirs, RecvFlags::DONTWAIT | RecvFlags::PEEK);
        let asked: Result<Request, ProtocolError> = receive(&theirs, RecvFlags::DONTWAIT);
        if let Ok(request) = asked {
            send(&ours, &request).expect("a message within the limit");
            let again: Request =
                receive(&theirs, RecvFlags::DONTWAIT).expect("the message just sent");
            assert_eq!(again, request);
        }
        if let Ok(answer) = answered {
            send(&theirs, &answer).expect("a message within the limit");
            let again: Answer = receive(&ours, RecvFlags::DONTWAIT).expect("the message just sent");
            assert_eq!(again, answer);
        }
    }
}

/// Returns every request and answer.
pub fn control_seeds() -> Vec<Vec<u8>> {
    let all = [
        r#"{"hello":{"version":1,"pid":7}}"#,
        r#"{"add":{"name":"v","public":"/p","inner":"/i","queues":3,"ring_size":1024,"device":"vsock 3"}}"#,
        r#"{"add":{"name":"v","public":"/p","inner":"/i","users":[0,107],"queues":3,"ring_size":1024,"device":"vsock 3"}}"#,
        r#"{"refused_users":{"name":"v"}}"#,
        r#"{"refused_users":{"total":2,"user":107}}"#,
        r#"{"delete":{"name":"v"}}"#,
        r#""synced""#,
        r#""let_go""#,
        r#""done""#,
        r#"{"refused":"because"}"#,
    ];
    vec![all.join("\0").into_bytes()]
}

/// Passes frontend messages to a device, and records those that the device accepts: the record
/// never has more queues or regions than a device, and agrees with the device.
pub fn record(data: &[u8]) {
    guest_memory::with::<{ 64 << 10 }>(|guest_memory| {
        let descriptor_set = DescriptorSet::new(guest_memory);
        let (ours, theirs) = pair(SocketType::STREAM);
        let mut peer = MessageStream::new(ours);
        let mut server = Server::new(model(), theirs);
        let mut record = Record::default();
        let mut input = Input::new(data);
        // The holder negotiates acknowledgement of every message.
        let all = model().protocol_offered().bits().to_ne_bytes();
        exchange(&mut peer, &mut server, 16, &all, &[]).expect("the offered features");
        for _ in 0..64 {
            if input.is_empty() {
                break;
            }
            let (code, payload, fds, memory) =
                message(&mut input, &descriptor_set, guest_memory.len());
            if code == 16 {
                continue;
            }
            let fds: Vec<_> = (0..fds).map(|_| descriptor_set.pick(&mut input, memory)).collect();
            let Some(answer) = exchange(&mut peer, &mut server, code, &payload, &fds) else {
                break;
            };
            note(&mut record, code, &payload, &fds, &answer);
            compare(&record, &server);
        }
    });
}

/// Sends a message and returns the payload of the answer, or `None` if the connection is over.
fn exchange(
    peer: &mut MessageStream,
    server: &mut Server,
    code: u32,
    payload: &[u8],
    fds: &[std::os::fd::BorrowedFd<'_>],
) -> Option<Vec<u8>> {
    let header = Header { code, flags: 9, size: payload.len() as u32 };
    peer.send(header, payload, fds).expect("room for a message");
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
        let stands = Message::decode_ring_value(request, answer).expect("an answer of the server");
        record.stopped(stands);
    } else if !causeway_holder::inner::expects_reply(request)
        && matches!(Message::decode_number(request, answer), Ok(0))
    {
        let message = Message::decode(request, payload, owned().map(ReceivedFd::new).collect());
        record.note(message.expect("an accepted message"));
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

/// Returns frontend set-ups.
pub fn record_seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packed in [0_u8, 1] {
        let mut scenario = vec![2, 0, 0, 1, 0, packed, 4, 0, 0, 5, 15, 30, 1, 6];
        for queue in 0..2 {
            scenario.extend([7, queue, 5, 9, queue, 1, 8, queue, 1, 12, queue, 1, 15]);
            scenario.extend([11, queue, 1, 15, 17, queue, 0]);
        }
        scenario.extend([10, 0, 0, 38, 0, 0, 33, 0, 0]);
        all.push(scenario);
    }
    all
}
