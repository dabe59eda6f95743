//! Addresses of endpoints, as applications exchange them.

/// Length of an address.
pub const BYTES: usize = 24;
/// Where the service stands, to the end.
const SERVICE_AT: usize = BYTES - size_of::<u32>();
/// In place of an endpoint's number: any.
pub const ANY: u8 = causeway_endpoint::limits::ENDPOINT_ANY;

/// An address: where an endpoint's board and number stand in it; the rest says which endpoint of
/// that number it is.
pub type Address = [u8; BYTES];

/// Any endpoint of a board.
pub fn of_board(nic: u64) -> Address {
    let mut address = [0; BYTES];
    let (board, rest) = address.split_at_mut(size_of::<u64>());
    board.copy_from_slice(&nic.to_le_bytes());
    if let Some(endpoint) = rest.first_mut() {
        *endpoint = ANY;
    }
    address
}

/// Returns the address of a service on a board: an endpoint that [`crate::rdm::service`] looks up
/// or opens. Without a service (0) it is the board's.
pub fn of_service(nic: u64, service: u32) -> Address {
    let mut address = of_board(nic);
    let (_, field) = address.split_at_mut(SERVICE_AT);
    field.copy_from_slice(&service.to_le_bytes());
    address
}

/// Returns the service in an address, or 0 if it has none.
pub fn service(address: &Address) -> u32 {
    let (_, field) = address.split_last_chunk().unwrap_or((&[], &[0; 4]));
    u32::from_le_bytes(*field)
}

/// Whose board it is.
pub fn board(address: &Address) -> u64 {
    let (nic, _) = address.split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*nic)
}

#[cfg(test)]
mod tests {
    use super::{ANY, board, of_board, of_service, service};

    #[test]
    fn address_keeps_its_service() {
        let address = of_service(0x0200_0000_0061, 0x1234_5678);
        assert_eq!((board(&address), service(&address)), (0x0200_0000_0061, 0x1234_5678));
        assert_eq!(service(&of_board(7)), 0);
        assert_eq!(of_service(7, 0), of_board(7));
    }

    #[test]
    fn an_address_says_whose_board_it_is() {
        let address = of_board(0x0200_0000_0061);
        assert_eq!(board(&address), 0x0200_0000_0061);
        assert_eq!(address[..9], [0x61, 0, 0, 0, 0, 2, 0, 0, ANY]);
    }
}
