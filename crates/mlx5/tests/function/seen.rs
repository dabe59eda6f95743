//! The commands that drivers sent in the test `vm: rdma_programs_of_two_stock_guests_exchange_data`.
//!
//! The test prints them with `CAUSEWAY_RDMA_COMMANDS=1`, for the kernel of `CAUSEWAY_RDMA_SUITE`
//! (`bookworm`, `trixie` or `backports`).

/// Kernel, and opcodes of its driver.
pub const SEEN: &[(&str, &[u16])] = &[("6.1", &[]), ("6.12", &[]), ("7.3", &[])];
