//! Frontends that break the rules of the protocol itself.

use std::os::fd::AsFd;

use crate::common::*;
use causeway_attach::limits::{MESSAGES_PER_TURN, PAYLOAD_BYTES_MAX};
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{ConfigSpace, Header, RingValue};
use causeway_attach::vhost_user::server::features;
use causeway_attach::{Event, FaultKind};
use proptest::prelude::*;

const SET_FEATURES_HEADER: Header = Header { code: 2, flags: 1, size: 8 };

fn all_requests() -> impl Iterator<Item = R> {
    (1..=64).filter_map(|code| R::try_from(code).ok())
}

#[test]
fn hostile_versions() {
    for version in [0, 2, 3] {
        let mut bench = Bench::running();
        let header = Header { flags: version, ..SET_FEATURES_HEADER };
        let result = bench.send_raw(&header.emit(), &[]);
        assert_fault(&mut bench, result, &["version", &version.to_string()]);
    }
}

#[test]
fn hostile_reserved_flags() {
    for flag in 4..32 {
        let mut bench = Bench::running();
        let header = Header { flags: 1 | 1 << flag, ..SET_FEATURES_HEADER };
        let result = bench.send_raw(&header.emit(), &[]);
        assert_fault(&mut bench, result, &["flags"]);
    }
}

#[test]
fn hostile_unsolicited_reply() {
    let mut bench = Bench::running();
    let result = bench.send_with_header(Header::reply(R::SET_FEATURES, 8), &[0; 8], &[]);
    assert_fault(&mut bench, result, &["flags"]);
}

#[test]
fn hostile_requests_that_do_not_exist() {
    for code in [0, 45, 0x0100_0001, u32::MAX] {
        let mut bench = Bench::running();
        let result = bench.send_raw(&Header { code, flags: 1, size: 0 }.emit(), &[]);
        assert_fault(&mut bench, result, &["unknown", &code.to_string()]);
    }
}

#[test]
fn hostile_requests_that_were_not_offered() {
    for request in [R::SEND_RARP, R::POSTCOPY_ADVISE, R::IOTLB_MSG, R::VRING_KICK] {
        let mut bench = Bench::running();
        let result = bench.request(request, &[0; 16], &[]);
        assert_fault(&mut bench, result, &["not offered"]);
    }
}

#[test]
fn hostile_payload_longer_than_any() {
    for size in [PAYLOAD_BYTES_MAX as u32 + 1, u32::MAX] {
        let mut bench = Bench::running();
        let result = bench.send_raw(&Header { size, ..SET_FEATURES_HEADER }.emit(), &[]);
        assert_fault(&mut bench, result, &["SET_FEATURES", &size.to_string()]);
    }
}

#[test]
fn hostile_payload_lengths() {
    for request in all_requests() {
        for len in [1, 7, 9, 39, 41, 100, PAYLOAD_BYTES_MAX] {
            let mut bench = Bench::running();
            let result = bench.request(request, &vec![0; len], &[]);
            assert_fault(&mut bench, result, &[]);
        }
    }
}

#[test]
fn hostile_requests_without_their_payload() {
    let bare = [
        R::GET_FEATURES,
        R::GET_PROTOCOL_FEATURES,
        R::SET_OWNER,
        R::RESET_OWNER,
        R::GET_QUEUE_NUM,
        R::RESET_DEVICE,
        R::GET_MAX_MEM_SLOTS,
        R::GET_STATUS,
    ];
    for request in all_requests().filter(|request| !bare.contains(request)) {
        let mut bench = Bench::running();
        let result = bench.request(request, &[], &[]);
        assert_fault(&mut bench, result, &[]);
    }
}

#[test]
fn hostile_close_within_a_message() {
    let message = [SET_FEATURES_HEADER.emit().as_slice(), &[0; 8]].concat();
    for len in 1..message.len() {
        let mut bench = Bench::running();
        bench.send_raw(&message[..len], &[]).unwrap();
        let result = bench.leave();
        assert_fault(&mut bench, result, &["middle of a message"]);
        assert_eq!(bench.events, [Event::QueueStopped(0)], "a reset, not a clean close");
    }
}

#[test]
fn hostile_features_that_were_not_offered() {
    for bit in (0..64).filter(|bit| model().offered() >> bit & 1 == 0) {
        let mut bench = Bench::new();
        let result = bench.send_number(R::SET_FEATURES, features::RING | 1 << bit);
        assert_fault(&mut bench, result, &["not offered", &format!("{:#x}", 1_u64 << bit)]);
    }
    for bit in (0..64).filter(|bit| model().protocol_offered().bits() >> bit & 1 == 0) {
        let mut bench = Bench::new();
        let result = bench.send_number(R::SET_PROTOCOL_FEATURES, 1 << bit);
        assert_fault(&mut bench, result, &["not offered"]);
    }
}

#[test]
fn hostile_requests_of_features_that_were_not_negotiated() {
    let config = ConfigSpace { offset: 0, size: 1, flags: 0, bytes: vec![0] }.emit();
    let inflight = [0; 20];
    let cases: [(R, &[u8]); 9] = [
        (R::GET_QUEUE_NUM, &[]),
        (R::GET_CONFIG, &config),
        (R::SET_CONFIG, &config),
        (R::GET_INFLIGHT_FD, &inflight),
        (R::RESET_DEVICE, &[]),
        (R::GET_MAX_MEM_SLOTS, &[]),
        (R::REM_MEM_REG, &[0; 40]),
        (R::SET_STATUS, &[0; 8]),
        (R::GET_STATUS, &[]),
    ];
    for (request, payload) in cases {
        let mut bench = Bench::new();
        bench.negotiate(0);
        let result = bench.request(request, payload, &[]);
        assert_fault(&mut bench, result, &[&format!("{request:?}"), "not negotiated"]);
    }
    let mut bench = Bench::new();
    bench.negotiate(0);
    let result = bench.add_region(&region());
    assert_fault(&mut bench, result, &["ADD_MEM_REG", "not negotiated"]);
    let mut bench = Bench::new();
    bench.negotiate(0);
    let result = bench.request(R::SET_BACKEND_REQ_FD, &[], &[sockets().0.as_fd()]);
    assert_fault(&mut bench, result, &["SET_BACKEND_REQ_FD", "not negotiated"]);
}

#[test]
fn hostile_configuration_space_offsets() {
    let cases =
        [(0, 0), (0, 257), (256, 1), (255, 2), (u32::MAX, 2), (2, u32::MAX), (1 << 31, 1 << 31)];
    for request in [R::GET_CONFIG, R::SET_CONFIG] {
        for (offset, size) in cases {
            let mut bench = Bench::running();
            let bytes = vec![0; (size as usize).min(300)];
            let space = ConfigSpace { offset, size, flags: 0, bytes };
            let result = bench.request(request, &space.emit(), &[]);
            assert_fault(&mut bench, result, &[&format!("{request:?}"), &offset.to_string()]);
        }
        let mut bench = Bench::running();
        let space = ConfigSpace { offset: 0, size: 100, flags: 0, bytes: vec![0; 10] };
        let result = bench.request(request, &space.emit(), &[]);
        assert_fault(&mut bench, result, &["112 expected"]);
    }
}

#[test]
fn hostile_replies_left_unread() {
    let mut bench = Bench::running();
    let question = Header::request(R::GET_FEATURES, 0).emit();
    let mut result = Ok(());
    for _ in 0..1_000_000 {
        result = bench.send_raw(&question, &[]);
        if result.is_err() {
            break;
        }
    }
    assert_fault(&mut bench, result, &["not read"]);
}

#[test]
fn hostile_floods_leave_time_for_others() {
    let mut bench = Bench::running();
    let many = Header::request(R::SET_OWNER, 0).need_reply().emit().repeat(MESSAGES_PER_TURN * 3);
    bench.send_raw(&many, &[]).unwrap();
    let answers = std::iter::from_fn(|| bench.reply()).count();
    assert_eq!(answers, MESSAGES_PER_TURN, "a turn handles at most that many");
    bench.server.receive(&mut bench.events).unwrap();
    bench.server.receive(&mut bench.events).unwrap();
    assert_eq!(std::iter::from_fn(|| bench.reply()).count(), 2 * MESSAGES_PER_TURN);
}

#[test]
fn hostile_request_is_refused_before_the_close() {
    let mut bench = Bench::running();
    let header = Header::request(R::SET_VRING_NUM, 8).need_reply();
    let result = bench.send_with_header(header, &RingValue { index: 0, value: 8 }.emit(), &[]);
    assert_eq!(bench.reply_number(), 1);
    assert_fault(&mut bench, result, &["SET_VRING_NUM"]);
}

#[test]
fn hostile_port_goes_down_alone() {
    let mut good = Bench::running();
    let mut bad = Bench::running();
    let memory = good.memory.try_clone().unwrap();
    let result = bad.request(R::SET_OWNER, &[], &[memory.as_fd()]);
    assert_eq!(result.as_ref().unwrap_err().kind, FaultKind::Guest);
    assert_fault(&mut bad, result, &["SET_OWNER", "1 descriptors"]);
    good.request(R::GET_FEATURES, &[], &[]).unwrap();
    assert_eq!(good.reply_number(), model().offered());
    assert!(good.server.device().is_running(0));
}

proptest! {
    /// For any bytes in any segmentation, the server does not panic and the conversation ends.
    #[test]
    fn hostile_noise(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..64), 1..20)) {
        let mut bench = Bench::running();
        for piece in pieces {
            if bench.send_raw(&piece, &[]).is_err() {
                break;
            }
        }
        let _ = bench.leave();
        assert_released(&bench);
    }

    /// Well-formed requests of any content, with or without descriptors, in any order.
    #[test]
    fn hostile_requests_at_random(
        requests in prop::collection::vec(
            (1_u32..46, prop::collection::vec(any::<u8>(), 0..48), 0_usize..3, any::<bool>()),
            1..30,
        ),
    ) {
        let mut bench = Bench::running();
        let (memory, bell) = (bench.memory.try_clone().unwrap(), event());
        for (code, mut payload, fds, small) in requests {
            if small {
                // Small numbers pass more checks than large ones.
                payload.iter_mut().enumerate().for_each(|(i, b)| *b = if i % 4 == 0 { *b & 7 } else { 0 });
                payload.resize(payload.len().next_multiple_of(8), 0);
            }
            let fds = &[bell.as_fd(), memory.as_fd()][..fds];
            let header = Header { code, flags: 1, size: payload.len() as u32 };
            let message = [header.emit().as_slice(), &payload].concat();
            if bench.send_raw(&message, fds).is_err() {
                break;
            }
        }
        let _ = bench.leave();
        assert_released(&bench);
    }
}
