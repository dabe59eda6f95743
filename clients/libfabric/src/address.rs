//! Endpoint addresses in the form that applications exchange: [`BYTES`] (24) opaque bytes. This
//! module handles the NIC and the service in them; `rdm::address_vector` has the whole format and
//! handles the names of open endpoints.
//!
//! An address made here names a NIC or a service, not an open endpoint: its endpoint number is
//! [`ANY`] (255), and it lacks the mark of a name, so an address vector does not insert it
//! (`FI_ADDR_NOTAVAIL`). The functions check nothing and never fail: other bytes are passed on as
//! they are.
//!
//! `info` makes and reads addresses for `fi_getinfo` and domains, `shell::endpoint` reads the
//! service to open, and `rdm::address_vector` adds and parses the fields of a name. All without
//! state.

/// Length of an address, in bytes.
pub const BYTES: usize = 24;
/// Offset of the service, which extends to the end.
const SERVICE_AT: usize = BYTES - size_of::<u32>();
/// The endpoint number that stands for any endpoint.
pub const ANY: u8 = causeway_endpoint::limits::ENDPOINT_ANY;

/// An address: the NIC's address, the endpoint number, and fields that identify the endpoint among
/// those that had the number over time.
pub type Address = [u8; BYTES];

/// Returns the address of any endpoint of a NIC.
pub fn of_nic(nic: u64) -> Address {
    let mut address = [0; BYTES];
    let (field, rest) = address.split_at_mut(size_of::<u64>());
    field.copy_from_slice(&nic.to_le_bytes());
    if let Some(endpoint) = rest.first_mut() {
        *endpoint = ANY;
    }
    address
}

/// Returns the address of a service on a NIC, from which `shell::endpoint` opens the endpoint of
/// the service. Without a service (0) it is the NIC's address.
pub fn of_service(nic: u64, service: u32) -> Address {
    let mut address = of_nic(nic);
    let (_, field) = address.split_at_mut(SERVICE_AT);
    field.copy_from_slice(&service.to_le_bytes());
    address
}

/// Returns the service in an address, or 0 if it has none.
pub fn service(address: &Address) -> u32 {
    let (_, field) = address.split_last_chunk().unwrap_or((&[], &[0; 4]));
    u32::from_le_bytes(*field)
}

/// Returns the NIC's address (48 bits) in an endpoint address.
pub fn nic(address: &Address) -> u64 {
    let (nic, _) = address.split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*nic)
}

#[cfg(test)]
mod tests {
    use super::{ANY, nic, of_nic, of_service, service};

    #[test]
    fn address_keeps_its_service() {
        let address = of_service(0x0200_0000_0061, 0x1234_5678);
        assert_eq!((nic(&address), service(&address)), (0x0200_0000_0061, 0x1234_5678));
        assert_eq!(service(&of_nic(7)), 0);
        assert_eq!(of_service(7, 0), of_nic(7));
    }

    #[test]
    fn address_contains_its_nic() {
        let address = of_nic(0x0200_0000_0061);
        assert_eq!(nic(&address), 0x0200_0000_0061);
        assert_eq!(address[..9], [0x61, 0, 0, 0, 0, 2, 0, 0, ANY]);
    }
}
