//! Flooded frames between the links of a group: every copy except the first is detected by its
//! number.

use crate::common::links::Group;

fn broadcast(from: u8, text: &[u8]) -> Vec<u8> {
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, from], &[0x88, 0xb5], text].concat()
}

#[test]
fn flood_is_forwarded_once_by_any_path() {
    let mut group = Group::new(&[true, true, true]);
    let frame = broadcast(1, b"hello");
    group.inject(0, Some(7), &frame);
    assert_eq!(group.left(), [(1, Some(7)), (2, Some(7))]);
    group.inject(1, Some(7), &frame);
    group.inject(0, Some(7), &frame);
    assert_eq!(group.left(), []);
    assert_eq!(
        (group.drops(0, "drop_duplicate_total"), group.drops(1, "drop_duplicate_total")),
        (1, 1)
    );
}

#[test]
fn flood_refused_frame_does_not_suppress_its_number() {
    let mut group = Group::new(&[true, true, true]);
    let frame = broadcast(1, b"hello");
    // Too short; from an invalid address; the number on another frame.
    group.inject(0, Some(7), &frame[..12]);
    group.inject(0, Some(7), &[&[0xff; 6][..], &[0; 6], &frame[12..]].concat());
    assert_eq!(group.left(), []);
    group.inject(0, Some(7), &broadcast(1, b"howdy"));
    assert_eq!(group.left(), [(1, Some(7)), (2, Some(7))]);
    group.inject(1, Some(7), &frame);
    assert_eq!(group.left(), [(0, Some(7)), (2, Some(7))], "the frame is forwarded nevertheless");
}

#[test]
fn hostile_flood_does_not_reopen_copies_of_other_links() {
    let mut group = Group::new(&[true, true, true]);
    let frame = broadcast(1, b"hello");
    group.inject(0, Some(7), &frame);
    for number in 1_000..15_000 {
        group.inject(1, Some(number), &broadcast(2, b"noise"));
        group.left();
    }
    group.inject(2, Some(7), &frame);
    assert_eq!(group.left(), []);
}

#[test]
fn flood_copy_by_transit_reaches_links_closed_to_the_first() {
    // The first copy arrived by a link that is not for transit, and might leave by the transit link
    // only.
    let mut group = Group::new(&[false, false, true, false]);
    let frame = broadcast(1, b"hello");
    group.inject(0, Some(7), &frame);
    assert_eq!(group.left(), [(2, Some(7))]);
    group.inject(2, Some(7), &frame);
    assert_eq!(group.left(), [(1, Some(7)), (3, Some(7))], "not to the ingress of the first copy");
    group.inject(2, Some(7), &frame);
    group.inject(1, Some(7), &frame);
    assert_eq!(group.left(), [], "the frame has left by every link");
}

#[test]
fn flood_number_drawn_here_is_recognised_on_return() {
    let mut group = Group::new(&[true, true]);
    let frame = broadcast(1, b"hello");
    // As from a link that carries no numbers.
    group.inject(0, None, &frame);
    let left = group.left();
    let [(1, Some(number))] = left.as_slice() else { panic!("{left:?}") };
    for _ in 0..10_000 {
        group.inject(0, None, &broadcast(2, b"more"));
    }
    group.left();
    group.inject(1, Some(*number), &frame);
    assert_eq!(group.left(), []);
    assert_eq!(group.drops(1, "drop_duplicate_total"), 1);
}

#[test]
fn flood_to_an_unknown_address_does_not_loop() {
    let mut group = Group::new(&[true, true, true]);
    let to = |to: u8, from: u8, text: &[u8]| {
        [&[2, 0, 0, 0, 0, to][..], &[2, 0, 0, 0, 0, from], &[0x88, 0xb5], text].concat()
    };
    let links = |group: &Group| group.left().iter().map(|(link, _)| *link).collect::<Vec<_>>();
    let frame = to(9, 1, b"where are you?");
    group.inject(0, None, &frame);
    assert_eq!(links(&group), [1, 2]);
    // Around the loop, in either direction.
    group.inject(1, None, &frame);
    group.inject(2, None, &frame);
    assert!(links(&group).is_empty());
    assert_eq!(group.drops(1, "drop_duplicate_total"), 1);
    group.inject(0, None, &frame);
    assert_eq!(links(&group), [1, 2], "a repeat by the same link");
    // Once the destination is known, equal frames go there by any path.
    group.inject(2, None, &to(1, 9, b"here"));
    group.left();
    group.inject(0, None, &frame);
    group.inject(1, None, &frame);
    assert_eq!(links(&group), [2, 2]);
}
