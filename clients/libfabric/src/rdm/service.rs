//! Endpoints that are opened for a service, as `fi_getinfo` takes it beside a node, and the look-up
//! of such endpoints.
//!
//! MX has endpoint numbers of 8 bits and no services. A service is therefore hashed to 32 bits. Its
//! endpoint takes the first free of [`SERVICE_PLACES`] (8) endpoint numbers that the hash selects,
//! and is opened with a key that depends on the hash. A client connects to these numbers in turn (a
//! *pass*) until an endpoint accepts the key. An endpoint of another service, or of none, refuses
//! the key, and a NIC refuses a number that has no endpoint (`EndpointClosed`): in both cases the
//! pass goes on with the next number. So services of other hosts are found without a directory.
//!
//! # Limits
//! Two services with the same hash are one service. A service is unique per NIC, not per host. The
//! caller blocks: for the opening of an endpoint, and at most [`SERVICE_ASK`] (1 s) for each
//! number. Refusals come at once, but for a number without an endpoint on another host, which takes
//! three round trips, 20 ms to 0.5 s. A number that does not answer in time, and an unknown NIC,
//! end the pass. [`find`] repeats passes, 20 ms apart, until its `patience` is over, and occupies
//! an endpoint number of its own NIC meanwhile. [`open`] opens first, and then makes a single pass
//! over the other numbers of its own NIC. It closes its endpoint and fails with [`Error::Taken`] if
//! the service has an endpoint there, and fails so if other endpoints use all numbers; two
//! simultaneous calls may both fail.
//!
//! # Place
//! [`Rdm::open`] opens the endpoint of a service; `info::node` calls [`find`] for `fi_getinfo` with
//! a service. Both run in the application's thread, without a domain's lock.

use std::time::{Duration, Instant};

use causeway_endpoint::limits::ENDPOINT_ANY;
use causeway_endpoint::{Endpoint, Error, OpenOptions};
use causeway_message::library::EndpointIdentity;
use causeway_message::split::{Address, NicId};
use causeway_message::status::Status;

use super::buffer::MessageBuffer;
use super::{EndpointName, KEY, Rdm};
use crate::limits::{SERVICE_ASK, SERVICE_PLACES, SERVICE_RETRY};

/// Returns the number of a service: the FNV-1a hash of its text, or of its value where it is a
/// decimal port. The port 0 is no service and has the number 0; no other service has that number.
pub fn number(service: &str) -> u32 {
    let value = service.trim().parse::<u32>();
    let text = match value {
        Ok(0) => return 0,
        Ok(value) => value.to_string(),
        Err(_) => service.to_owned(),
    };
    let hash = text
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// Returns the key of an endpoint that was opened for a service, or for none (0).
pub fn key_of(service: u32) -> u32 {
    KEY ^ service
}

/// Returns the endpoint numbers of a service, in the order in which they are tried.
fn numbers_of(service: u32) -> impl Iterator<Item = u8> {
    let within = |number: u32| number.checked_rem(u32::from(ENDPOINT_ANY)).unwrap_or(0);
    let first = within(service);
    (0..SERVICE_PLACES).filter_map(move |at| u8::try_from(within(first.wrapping_add(at))).ok())
}

/// Opens the endpoint of a service.
///
/// # Errors
/// Those of [`Endpoint::open`]; [`Error::Taken`] if an endpoint of the NIC has the service, or all
/// of its numbers are in use.
pub fn open(nic_index: u32, service: u32) -> Result<Endpoint<MessageBuffer>, Error> {
    let opening = OpenOptions { key: key_of(service), ..Rdm::OPENING };
    for endpoint_number in numbers_of(service) {
        let mut opened = match Endpoint::open(nic_index, endpoint_number, opening) {
            Ok(opened) => opened,
            Err(Error::Taken) => continue,
            Err(error) => return Err(error),
        };
        let own = opened.library.address();
        let others = numbers_of(service).filter(|other| *other != endpoint_number);
        let twin = connect_in_turn(&mut opened, own.nic, service, others);
        if twin.is_none() {
            return Ok(opened);
        }
        opened.finish();
        return Err(Error::Taken);
    }
    Err(Error::Taken)
}

/// Looks up the service on the NIC `nic`, from the NIC `nic_index` of this host. The pass over the
/// numbers is repeated for `patience` (at least one pass), because a client may be started before
/// its server. `None` means that no endpoint has the service, or that the NIC is unknown or does
/// not answer.
///
/// # Errors
/// Those of [`Endpoint::open`].
pub fn find(
    nic_index: u32,
    nic: u64,
    service: u32,
    patience: Duration,
) -> Result<Option<EndpointName>, Error> {
    let mut asks = Endpoint::open(nic_index, ENDPOINT_ANY, Rdm::OPENING)?;
    let since = Instant::now();
    let found = loop {
        let found = connect_in_turn(&mut asks, NicId(nic), service, numbers_of(service));
        if found.is_some() || since.elapsed() >= patience {
            break found;
        }
        std::thread::sleep(SERVICE_RETRY);
    };
    asks.finish();
    Ok(found.map(|source| EndpointName { source, service }))
}

/// Makes a pass: connects to the endpoint numbers of a service in turn until an endpoint accepts
/// the key. Returns `None` if every number refuses, and at the first number that does not answer.
fn connect_in_turn(
    asks: &mut Endpoint<MessageBuffer>,
    nic: NicId,
    service: u32,
    numbers: impl Iterator<Item = u8>,
) -> Option<EndpointIdentity> {
    let patience = u64::try_from(SERVICE_ASK.as_nanos()).ok();
    for endpoint in numbers {
        asks.update_time();
        let (address, key) = (Address { nic, endpoint }, key_of(service));
        let asked = asks.library.iconnect(&mut asks.paths, address, key, 0, 0, patience).ok()?;
        let ended = asks.wait_for(asked, SERVICE_ASK)?;
        match (ended.status, ended.partner) {
            (Status::Success, Some(partner)) => return asks.library.source_of(partner),
            // No endpoint of this NIC answers; the other numbers would time out as well.
            (Status::Timeout | Status::EndpointUnreachable | Status::EndpointUnknown, _) => {
                return None;
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{SERVICE_PLACES, key_of, number, numbers_of};
    use crate::rdm::KEY;

    #[test]
    fn service_numbers_differ_and_ports_are_read_as_numbers() {
        assert_eq!((number("0"), number("9228")), (0, number("09228")));
        assert_ne!(number("9228"), number("9229"));
        assert_ne!((number("http"), number("")), (0, 0));
        assert_eq!(key_of(0), KEY);
        assert_ne!(key_of(number("9228")), KEY);
        let numbers: std::collections::BTreeSet<u8> = numbers_of(u32::MAX).collect();
        assert_eq!(numbers.len(), SERVICE_PLACES as usize);
        assert!(!numbers.contains(&255));
    }
}
