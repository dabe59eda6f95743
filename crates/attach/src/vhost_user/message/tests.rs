//! Encoded messages decode to the same values, and the layouts are those of the `vhost` crate.

use std::os::fd::OwnedFd;

use proptest::prelude::*;
use vhost::vhost_user::message::{
    VhostUserConfig, VhostUserConfigFlags, VhostUserInflight, VhostUserMemoryRegion,
    VhostUserVringAddr, VhostUserVringAddrFlags, VhostUserVringState,
};
use vm_memory::ByteValued;

use super::*;
use FrontendReq as R;

fn file() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// Decodes a message that has `fds` descriptors.
fn read(request: R, payload: &[u8], fds: usize) -> Message {
    Message::decode(request, payload, (0..fds).map(|_| file().into()).collect()).unwrap()
}

prop_compose! {
    fn region()(guest: u64, len: u64, user: u64, offset: u64) -> RegionSpec {
        RegionSpec { guest, len, user, offset }
    }
}

proptest! {
    #[test]
    fn vhost_user_header_round_trips(code in 1_u32..45, size in 0..=4096_u32, reply: bool, need: bool) {
        let request = R::try_from(code).unwrap();
        let header = if reply { Header::reply(request, size) } else { Header::request(request, size) };
        let header = if need { header.need_reply() } else { header };
        prop_assert_eq!(Header::parse(header.emit()).unwrap(), (header, request));
        prop_assert_eq!((header.is_reply(), header.needs_reply()), (reply, need));
    }

    #[test]
    fn vhost_user_any_header_is_parsed_or_refused(bytes: [u8; HEADER_BYTES]) {
        if let Ok((header, _)) = Header::parse(bytes) {
            prop_assert_eq!(header.emit(), bytes);
        }
    }

    #[test]
    fn vhost_user_any_payload_is_decoded_or_refused(
        code in 1_u32..45,
        payload in prop::collection::vec(any::<u8>(), 0..300),
        fds in 0_usize..4,
    ) {
        let request = R::try_from(code).unwrap();
        let _ = Message::decode(request, &payload, (0..fds).map(|_| file().into()).collect());
    }

    #[test]
    fn vhost_user_ring_value_round_trips(index: u32, value: u32) {
        let sent = RingValue { index, value };
        let Message::SetVringNum(got) = read(R::SET_VRING_NUM, &sent.emit(), 0) else { panic!() };
        prop_assert_eq!(got, sent);
        let theirs = VhostUserVringState::new(index, value);
        prop_assert_eq!(sent.emit(), theirs.as_slice());
    }

    #[test]
    fn vhost_user_ring_addresses_round_trip(index: u32, log: bool, words: [u64; 4]) {
        let [descriptors, used, available, log_at] = words;
        let flags = u32::from(log);
        let sent = RingAddresses { index, flags, descriptors, used, available, log: log_at };
        let Message::SetVringAddr(got) = read(R::SET_VRING_ADDR, &sent.emit(), 0) else { panic!() };
        prop_assert_eq!(got, sent);
        let flags = VhostUserVringAddrFlags::from_bits(flags).unwrap();
        let theirs =
            VhostUserVringAddr::new(index, flags, descriptors, used, available, log_at);
        prop_assert_eq!(sent.emit(), theirs.as_slice());
    }

    #[test]
    fn vhost_user_ring_event_round_trips(index in 0_u32..256, attached: bool) {
        let payload = RingEvent::emit(index, attached);
        let fds = usize::from(attached);
        let Message::SetVringCall(got) = read(R::SET_VRING_CALL, &payload, fds) else { panic!() };
        prop_assert_eq!((got.index, got.fd.is_some()), (index, attached));
    }

    #[test]
    fn vhost_user_memory_table_round_trips(regions in prop::collection::vec(region(), 1..=8), room in 0_usize..64) {
        let mut payload = emit_table(&regions);
        payload.extend(vec![0xff; room]);
        let read = read(R::SET_MEM_TABLE, &payload, regions.len());
        let Message::SetMemTable(got) = read else { panic!() };
        prop_assert_eq!(got.into_iter().map(|(spec, _)| spec).collect::<Vec<_>>(), regions);
    }

    #[test]
    fn vhost_user_region_round_trips(sent in region()) {
        let payload = emit_region(&sent);
        let Message::AddMemReg(got, _) = read(R::ADD_MEM_REG, &payload, 1) else { panic!() };
        prop_assert_eq!(got, sent);
        for fds in 0..2 {
            let Message::RemMemReg(got) = read(R::REM_MEM_REG, &payload, fds) else { panic!() };
            prop_assert_eq!(got, sent);
        }
        let RegionSpec { guest, len, user, offset } = sent;
        let theirs = VhostUserMemoryRegion::new(guest, len, user, offset);
        prop_assert_eq!(sent.emit(), theirs.as_slice());
    }

    #[test]
    fn vhost_user_config_space_round_trips(
        offset in 0_u32..100,
        flags in 0_u32..4,
        bytes in prop::collection::vec(any::<u8>(), 1..150),
    ) {
        let size = bytes.len() as u32;
        let sent = ConfigSpace { offset, size, flags, bytes };
        let Message::GetConfig(got) = read(R::GET_CONFIG, &sent.emit(), 0) else { panic!() };
        prop_assert_eq!(&got, &sent);
        let flags = VhostUserConfigFlags::from_bits(flags).unwrap();
        let theirs = VhostUserConfig::new(offset, size, flags);
        prop_assert_eq!(&sent.emit()[..12], theirs.as_slice());
    }

    #[test]
    fn vhost_user_inflight_description_round_trips(len: u64, offset: u64, queues: u16, ring_size: u16, padded: bool) {
        let sent = InflightSpec { len, offset, queues, ring_size, padded };
        let Message::GetInflightFd(got) = read(R::GET_INFLIGHT_FD, &sent.emit(), 0) else { panic!() };
        prop_assert_eq!(got, sent);
        let theirs = VhostUserInflight::new(len, offset, queues, ring_size);
        prop_assert_eq!(&sent.emit()[..20], &theirs.as_slice()[..20]);
    }

    #[test]
    fn vhost_user_number_round_trips(number: u64) {
        let payload = number.to_ne_bytes();
        let Message::SetFeatures(got) = read(R::SET_FEATURES, &payload, 0) else { panic!() };
        prop_assert_eq!(got, number);
    }
}
