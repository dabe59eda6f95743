//! Round trips of messages, and hostile bytes.

use super::*;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Name> {
    "[a-z:0-9é]{0,40}".prop_map(|text| Name::new(&text).unwrap())
}

fn client_message() -> impl Strategy<Value = Ask> {
    prop_oneof![
        (any::<u16>(), 0..2_u8).prop_map(|(version, direct)| Ask::Hello { version, direct }),
        any::<(u32, u8, u32)>().prop_map(|(tag, endpoint, key)| Ask::Open { tag, endpoint, key }),
        any::<u8>().prop_map(|endpoint| Ask::Close { endpoint }),
        any::<(u8, u8, u32, u64, u64)>().prop_map(|(endpoint, to, key, token, nic)| {
            Ask::Connect { endpoint, to, key, token, nic }
        }),
        any::<(u8, u8, u32, u64)>().prop_map(|(endpoint, to, way, nic)| Ask::Disconnect {
            endpoint,
            to,
            way,
            nic
        }),
        any::<(u32, u8, u64)>().prop_map(|(tag, endpoint, len)| Ask::Region { tag, endpoint, len }),
        any::<(u8, u8)>().prop_map(|(endpoint, region)| Ask::Unregion { endpoint, region }),
        any::<(u32, u8, u32, u32)>().prop_map(|(tag, endpoint, key, session)| {
            Ask::Resume { tag, endpoint, key, session }
        }),
        (any::<u32>(), name()).prop_map(|(tag, name)| Ask::Find { tag, name }),
        any::<(u32, u64)>().prop_map(|(tag, nic)| Ask::Name { tag, nic }),
    ]
}

fn daemon_message() -> impl Strategy<Value = Tell> {
    prop_oneof![
        (any::<(u16, u64, [u8; 16])>(), name()).prop_map(|((version, nic, host), name)| {
            Tell::Welcome { version, nic, host, name }
        }),
        (any::<(u32, u32, u32, u8)>(), 0..2_u8).prop_map(
            |((tag, code, session, endpoint), bypass)| Tell::Opened {
                tag,
                code,
                session,
                endpoint,
                bypass
            }
        ),
        (any::<(u8, u8, u32, u32, u64, u64)>(), 0..2_u8).prop_map(
            |((endpoint, of, session, way, token, nic), side)| Tell::Channel {
                endpoint,
                of,
                side,
                session,
                way,
                token,
                nic
            }
        ),
        (any::<u8>(), 0..2_u8, any::<u64>()).prop_map(|(endpoint, known, token)| Tell::Remote {
            endpoint,
            known,
            token
        }),
        any::<u8>().prop_map(|endpoint| Tell::Wake { endpoint }),
        any::<(u32, u32, u8, u8)>().prop_map(|(tag, code, endpoint, region)| Tell::Region {
            tag,
            code,
            endpoint,
            region
        }),
        any::<(u8, u8, u64)>().prop_map(|(endpoint, status, token)| Tell::Refused {
            endpoint,
            status,
            token
        }),
        any::<(u8, u8, u32, u64)>().prop_map(|(endpoint, of, way, nic)| Tell::Gone {
            endpoint,
            of,
            way,
            nic
        }),
        (any::<(u32, u64)>(), 0..2_u8, name()).prop_map(|((tag, nic), known, name)| Tell::Host {
            tag,
            known,
            nic,
            name
        }),
    ]
}

proptest! {
    #[test]
    fn local_messages_round_trip(client in client_message(), daemon in daemon_message()) {
        prop_assert_eq!(Ask::parse(&client.emit()), Ok(client));
        prop_assert_eq!(Tell::parse(&daemon.emit()), Ok(daemon));
    }

    #[test]
    fn hostile_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..140)) {
        let _ = (Ask::parse(&bytes), Tell::parse(&bytes));
    }
}

#[test]
fn local_names_are_bounded() {
    assert!(Name::new(&"x".repeat(NAME_BYTES_MAX)).is_some());
    assert!(Name::new(&"x".repeat(NAME_BYTES_MAX + 1)).is_none());
    let mut bytes = Ask::Find { tag: 0, name: Name::new("a").unwrap() }.emit();
    bytes[8] = 81;
    assert_eq!(Ask::parse(&bytes), Err(Error::Field("name")));
    assert_eq!(Ask::parse(&[9; MESSAGE_BYTES]), Err(Error::Field("reserved")));
}
