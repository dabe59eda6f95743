//! Round trips of messages, and hostile bytes.

use super::*;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Name> {
    "[a-z:0-9é]{0,40}".prop_map(|text| Name::new(&text).unwrap())
}

fn client_message() -> impl Strategy<Value = ClientMessage> {
    prop_oneof![
        (any::<u16>(), 0..4_u8)
            .prop_map(|(version, direct)| ClientMessage::Hello { version, direct }),
        any::<(u32, u8, u32)>().prop_map(|(tag, endpoint, key)| ClientMessage::Open {
            tag,
            endpoint,
            key
        }),
        any::<u8>().prop_map(|endpoint| ClientMessage::Close { endpoint }),
        any::<(u8, u8, u32, u64, u64)>().prop_map(|(endpoint, to, key, token, nic)| {
            ClientMessage::Connect { endpoint, to, key, token, nic }
        }),
        any::<(u8, u8, u32, u64)>().prop_map(|(endpoint, to, way, nic)| {
            ClientMessage::Disconnect { endpoint, to, way, nic }
        }),
        any::<(u32, u8, u64)>().prop_map(|(tag, endpoint, len)| ClientMessage::Region {
            tag,
            endpoint,
            len
        }),
        any::<(u8, u8)>()
            .prop_map(|(endpoint, region)| ClientMessage::Unregion { endpoint, region }),
        any::<(u32, u8, u32, u32)>().prop_map(|(tag, endpoint, key, session)| {
            ClientMessage::Resume { tag, endpoint, key, session }
        }),
        (any::<u32>(), name()).prop_map(|(tag, name)| ClientMessage::Find { tag, name }),
        any::<(u32, u64)>().prop_map(|(tag, nic)| ClientMessage::Name { tag, nic }),
    ]
}

fn daemon_message() -> impl Strategy<Value = DaemonMessage> {
    prop_oneof![
        (any::<(u16, u64, [u8; 16])>(), name()).prop_map(|((version, nic, host), name)| {
            DaemonMessage::Welcome { version, nic, host, name }
        }),
        (any::<(u32, u32, u32, u8)>(), 0..2_u8).prop_map(
            |((tag, code, session, endpoint), bypass)| DaemonMessage::Opened {
                tag,
                code,
                session,
                endpoint,
                bypass
            }
        ),
        (any::<(u8, u8, u32, u32, u64, u64)>(), 0..2_u8).prop_map(
            |((endpoint, of, session, way, token, nic), side)| DaemonMessage::Channel {
                endpoint,
                of,
                side,
                session,
                way,
                token,
                nic
            }
        ),
        (any::<u8>(), 0..2_u8, any::<u64>())
            .prop_map(|(endpoint, known, token)| DaemonMessage::Remote { endpoint, known, token }),
        any::<u8>().prop_map(|endpoint| DaemonMessage::Wake { endpoint }),
        any::<(u32, u32, u8, u8)>().prop_map(|(tag, code, endpoint, region)| {
            DaemonMessage::Region { tag, code, endpoint, region }
        }),
        any::<(u8, u8, u64)>().prop_map(|(endpoint, status, token)| DaemonMessage::Refused {
            endpoint,
            status,
            token
        }),
        any::<(u8, u8, u32, u64)>().prop_map(|(endpoint, of, way, nic)| DaemonMessage::Gone {
            endpoint,
            of,
            way,
            nic
        }),
        (any::<(u32, u64)>(), 0..2_u8, name())
            .prop_map(|((tag, nic), known, name)| DaemonMessage::Host { tag, known, nic, name }),
    ]
}

proptest! {
    #[test]
    fn local_messages_round_trip(client in client_message(), daemon in daemon_message()) {
        prop_assert_eq!(ClientMessage::parse(&client.emit()), Ok(client));
        prop_assert_eq!(DaemonMessage::parse(&daemon.emit()), Ok(daemon));
    }

    #[test]
    fn hostile_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..140)) {
        let _ = (ClientMessage::parse(&bytes), DaemonMessage::parse(&bytes));
    }
}

#[test]
fn local_names_are_bounded() {
    assert!(Name::new(&"x".repeat(NAME_BYTES_MAX)).is_some());
    assert!(Name::new(&"x".repeat(NAME_BYTES_MAX + 1)).is_none());
    let mut bytes = ClientMessage::Find { tag: 0, name: Name::new("a").unwrap() }.emit();
    bytes[8] = 81;
    assert_eq!(ClientMessage::parse(&bytes), Err(Error::Field("name")));
    assert_eq!(ClientMessage::parse(&[9; MESSAGE_BYTES]), Err(Error::Field("reserved")));
}
