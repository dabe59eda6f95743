//! Entries of the rings between host side and engine, and messages between process and daemon: each
//! either decodes to a value that encodes to the same bytes, or is refused. Targets `entry` and
//! `word`. Values are encoded again and compared; no engine, socket or matching is involved.
//! Discovery gets frames too, and must keep to its tables.

use causeway_channel::mx_rings::{layout, read_event, read_request, write_event, write_request};
use causeway_channel::{EventHead, Receiver, Sender, Side, open};
use causeway_memory::View;
use causeway_mxoe::discovery::Discovery;
use causeway_wire::local::{ClientMessage, DaemonMessage, MESSAGE_BYTES};
use causeway_wire::mx::{Event, NicId};

use crate::Input;
use causeway_testing::messages::memory;

/// Decodes a ring entry.
pub fn entry(data: &[u8]) {
    let mut input = Input::new(data);
    let small = input.u8();
    let mut word = |bit: u8| {
        let word = input.u64();
        // Small values are more often valid.
        if small & bit == 0 { word } else { word & 0xff }
    };
    let words = [word(1), word(2), word(4)];
    let head = EventHead { kind: input.u8() % 10, words };
    let bytes = input.rest();
    if let Ok(request) = read_request(&head, bytes) {
        let (mut sender, receiver) = pair();
        assert_eq!(write_request(&mut sender, &request), Ok(true));
        assert_eq!(taken(&receiver), (head, bytes.to_vec()));
    }
    if let Ok(event) = read_event(&head, bytes.len())
        && !matches!(event, Event::Message { .. })
    {
        let (mut sender, receiver) = pair();
        assert_eq!(write_event(&mut sender, &event), Ok(true));
        assert_eq!(taken(&receiver), (head, bytes.to_vec()));
    }
}

fn pair() -> (Sender, Receiver) {
    let view: View = memory(layout());
    let (sender, _) = open(&view, Side::First).expect("a formatted channel");
    let (_, receiver) = open(&view, Side::Second).expect("a formatted channel");
    (sender, receiver)
}

fn taken(receiver: &Receiver) -> (EventHead, Vec<u8>) {
    let event = receiver.poll().expect("a valid ring").expect("an event");
    let mut bytes = vec![0; event.len];
    receiver.copy(&event, 0, &mut bytes);
    (event.head, bytes)
}

/// Returns an entry of each kind.
pub fn entry_seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u8, len: usize| {
        let words = [0x0003_0200_0000_0001_u64, 2, 3].map(u64::to_le_bytes);
        [&[7][..], words.as_flattened(), &[kind], &vec![0; len]].concat()
    };
    [(1, 8), (2, 0), (3, 0), (3, 20), (4, 33), (5, 16), (6, 4), (7, 0), (1, 0), (5, 0)]
        .map(|(kind, len)| seed(kind, len))
        .into()
}

/// Decodes messages of the local attachment, and discovery frames of NICs.
pub fn word(data: &[u8]) {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    if let Ok(ask) = ClientMessage::parse(&bytes) {
        assert_eq!(ClientMessage::parse(&ask.emit()), Ok(ask));
    }
    if let Ok(tell) = DaemonMessage::parse(&bytes) {
        assert_eq!(DaemonMessage::parse(&tell.emit()), Ok(tell));
    }
    let mut discovery = Discovery::new(NicId(0x0200_0000_0001), 5, 7, 0);
    for (now, frame) in (0_u64..).zip(data.chunks(64)) {
        if Discovery::takes(frame) {
            let _ = discovery.receive(now, frame);
        }
    }
    assert!(discovery.peers().count() <= data.len() / 64 + 1);
    let mut frames = 0;
    discovery.tick(1 << 20, &mut |_, _| frames += 1);
    assert!(frames <= discovery.peers().count() + 1);
}

/// Returns each message, and an announcement.
pub fn word_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (1..=9_u8).map(|kind| vec![kind, 0, 0, 0, 1, 0, 1, 1]).collect();
    let mut frame = [0; 64];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    frame[12..17].copy_from_slice(&[0x86, 0xdf, 0, 0, 1]);
    frame[34..44].copy_from_slice(&[2, 0, 0, 0, 0, 7, 1, 2, 3, 4]);
    seeds.push(frame.to_vec());
    seeds
}
