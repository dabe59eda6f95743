//! Round trips of requests and events, and hostile entries.

use std::sync::Arc;

use causeway_memory::{Mapping, View, create};
use causeway_wire::mx::{Event, Handle, PeerId, RegionId, Request, Status, Token, Window};
use proptest::prelude::*;
use std::os::fd::AsFd as _;

use super::*;
use crate::{EventHead, Receiver, Sender, Side, format, open};

fn pair() -> (Sender, Receiver) {
    let len = layout().bytes();
    let file = create("rings", len as u64).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len as u64).unwrap());
    let view = View::new(mapping, 0, len).unwrap();
    format(&view, layout()).unwrap();
    let (sender, _) = open(&view, Side::First).unwrap();
    let (_, receiver) = open(&view, Side::Second).unwrap();
    (sender, receiver)
}

#[test]
fn mx_rings_have_the_constant_sizes() {
    assert_eq!((layout().slots(), layout().data()), (ENTRIES as u32, DATA_BYTES));
}

fn taken(receiver: &Receiver) -> (EventHead, Vec<u8>) {
    let event = receiver.poll().unwrap().unwrap();
    let mut bytes = vec![0; event.len];
    receiver.copy(&event, 0, &mut bytes);
    (event.head, bytes)
}

fn requests(words: [u64; 3], small: [u32; 3], byte: u8, data: &[u8]) -> Vec<Request<'_>> {
    let [a, b, c] = words;
    let [d, e, f] = small;
    let to = Address { nic: NicId(a & 0xffff_ffff_ffff), endpoint: byte };
    let window = Window { region: RegionId(byte), offset: c, len: f };
    let (peer, token, match_info) = (PeerId(d), Token(b), a);
    let timeout_ns = Some(c).filter(|&c| c != u64::MAX);
    vec![
        Request::Connect { token, to, key: e, timeout_ns },
        Request::Connect { token, to, key: e, timeout_ns: None },
        Request::Disconnect { peer },
        Request::Forget { peer },
        Request::Eager { peer, token, match_info, data },
        Request::Offer { peer, token, match_info, from: window },
        Request::Pull { handle: Handle(e), token, into: window },
        Request::Cancel { token },
        Request::Watch { peer, on: true },
        Request::Watch { peer, on: false },
    ]
}

fn events(words: [u64; 3], small: [u32; 3], byte: u8) -> Vec<Event<'static>> {
    let [a, b, _] = words;
    let [d, e, f] = small;
    let status = Status::of(u32::from(byte) % 17).unwrap();
    let address = Address { nic: NicId(a & 0xffff_ffff_ffff), endpoint: byte };
    let (peer, token, match_info) = (PeerId(d), Token(b), a);
    vec![
        Event::Connected { token, status, peer },
        Event::PeerSeen { peer, address, session: e },
        Event::Message { peer, match_info, data: &[] },
        Event::Offered { peer, match_info, len: f, handle: Handle(e) },
        Event::Sent { token, status, taken: f },
        Event::Pulled { token, status },
        Event::PeerGone { peer, status },
    ]
}

proptest! {
    #[test]
    fn mx_rings_read_what_was_written(
        words in any::<[u64; 3]>(),
        small in any::<[u32; 3]>(),
        byte in any::<u8>(),
        data in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        for request in requests(words, small, byte, &data) {
            let (mut sender, receiver) = pair();
            prop_assert!(write_request(&mut sender, &request).unwrap());
            let (head, bytes) = taken(&receiver);
            prop_assert_eq!(read_request(&head, &bytes), Ok(request));
        }
        for event in events(words, small, byte) {
            let (mut sender, receiver) = pair();
            prop_assert!(write_event(&mut sender, &event).unwrap());
            let (head, bytes) = taken(&receiver);
            prop_assert_eq!(read_event(&head, bytes.len()), Ok(event));
        }
    }

    #[test]
    fn mx_rings_read_or_refuse_hostile_entries(
        kind in 0..10_u8,
        words in any::<[u64; 3]>(),
        cut in any::<[bool; 3]>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let few = |(word, cut): (u64, bool)| if cut { word & 0xff } else { word };
        let [a, b, c] = words;
        let [d, e, f] = cut;
        let head = EventHead { kind, words: [few((a, d)), few((b, e)), few((c, f))] };
        // A decoded entry encodes to the same bytes.
        if let Ok(request) = read_request(&head, &bytes) {
            let (mut sender, receiver) = pair();
            prop_assert!(write_request(&mut sender, &request).unwrap());
            prop_assert_eq!(taken(&receiver), (head, bytes.clone()));
        }
        if let Ok(event) = read_event(&head, bytes.len())
            && !matches!(event, Event::Message { .. })
        {
            let (mut sender, receiver) = pair();
            prop_assert!(write_event(&mut sender, &event).unwrap());
            prop_assert_eq!(taken(&receiver), (head, bytes));
        }
    }
}

#[test]
fn mx_rings_refuse_hostile_lengths() {
    let head = eager(PeerId(1), Token(2), 3);
    let long = vec![0; MEDIUM_BYTES_MAX + 1];
    assert!(read_request(&head, &long[1..]).is_ok());
    assert!(matches!(read_request(&head, &long), Err(InvalidEntry::Length { .. })));
    let message = EventHead { kind: 3, words: [0; 3] };
    assert!(
        read_event(&message, long.len() - 1).is_ok() && read_event(&message, long.len()).is_err()
    );
}
