//! Calls about NICs and about the library: `mx_get_info`, names and numbers of NICs, boards.
//!
//! A *board* is a NIC of this host, numbered from 0 in the order of the places (sockets, or an
//! adapter in a guest) that the process finds. Names have at most 79 bytes. A name that discovery
//! has not found yet is unknown; the caller tries again. Keys of `mx_get_info` that describe
//! Myrinet hardware are answered with constants, or fail with `MX_BAD_INFO_KEY`. If the output
//! buffer is too short, `mx_get_info` fails with `MX_BAD_INFO_LENGTH` and writes nothing; the other
//! calls require room for their result, 80 bytes for a name. All calls but `mx_open_board` and
//! `mx__get_mapper_state` need `mx_init`.
//!
//! The calls ask the daemon of a NIC, or those of all NICs in turn, and wait at most 10 s for each
//! connect and each answer; addresses of local NICs are asked for once and cached until
//! `mx_finalize`. They need no endpoint, except for counters of one.

use std::ffi::{c_char, c_int, c_void};

use causeway_endpoint::paths::StagingCounters;
use causeway_message::library::Counters;
use causeway_message::limits::{MEDIUM_BYTES_MAX, SMALL_BYTES_MAX};

use super::finish_call;
use super::lifecycle::initialized;
use crate::abi::{CallerPtr, get, put, put_bytes, text};
use crate::code::{Code, Return};
use crate::endpoint::{COUNTERS, named_counters};
use causeway_endpoint::nic;

use crate::{errors, table};

/// Maximum length of a name, including its NUL.
const HOSTNAME_MAX: usize = 80;
/// Length of strings and counter labels.
const STRING_BYTES: usize = 128;

/// `MX_COUNTERS_LABELS`.
const COUNTERS_LABELS: u32 = 6;
/// `MX_COUNTERS_VALUES`.
const COUNTERS_VALUES: u32 = 7;

/// Subject of a query: an endpoint (its NIC and counters), or the whole process.
#[derive(Debug, Clone, Copy)]
struct InfoSubject(Option<(u32, [(&'static str, u64); COUNTERS])>);

impl InfoSubject {
    /// Returns the NIC of the endpoint.
    fn board(self) -> Option<u32> {
        self.0.map(|(board, _)| board)
    }
}

/// Arguments of `mx_get_info`.
#[derive(Debug, Clone, Copy)]
struct Query {
    /// `MX_NIC_ID`, `MX_COUNTERS_VALUES` and the like.
    key: u32,
    /// Argument of the key: at least one byte, unless `len` is 0.
    value: CallerPtr<u8>,
    /// Length of `value`, in bytes.
    len: u32,
    /// Memory for the answer.
    into: CallerPtr<u8>,
    /// Length of `into`, in bytes.
    room: u32,
}

impl Query {
    fn bytes(&self, bytes: &[u8]) -> Result<(), Return> {
        if bytes.len() > self.room as usize {
            return Err(Return::BadInfoLength);
        }
        // SAFETY: the caller guarantees `room` bytes, which suffice.
        unsafe { put_bytes(self.into, 0, bytes, Return::BadInfoVal) }
    }

    fn number(&self, number: u32) -> Result<(), Return> {
        self.bytes(&number.to_ne_bytes())
    }

    fn string(&self, string: &str) -> Result<(), Return> {
        let mut bytes = string.as_bytes().to_vec();
        bytes.truncate(STRING_BYTES.saturating_sub(1));
        bytes.push(0);
        self.bytes(&bytes)
    }

    /// Returns the number of the queried NIC: that of the endpoint, or the first byte of the value.
    fn board(&self, of_endpoint: Option<u32>) -> Result<u32, Return> {
        let number = match of_endpoint {
            Some(board) => board,
            None if self.len == 0 => return Err(Return::BadInfoVal),
            None => get(self.value, Return::BadInfoVal)?.into(),
        };
        if number < nic::count() { Ok(number) } else { Err(Return::BoardUnknown) }
    }

    /// Returns the counters of the endpoint, or the sum for all endpoints of this process at the
    /// NIC.
    fn counters(&self, of: InfoSubject) -> Result<(), Return> {
        let board = self.board(of.board())?;
        let mut all = named_counters(&Counters::default(), (0, 0), StagingCounters::default());
        match of.0 {
            Some((_, counters)) => all = counters,
            None => table::each(|endpoint| {
                if endpoint.board == board {
                    all.iter_mut().zip(endpoint.counters()).for_each(|(sum, (_, value))| {
                        sum.1 = sum.1.wrapping_add(value);
                    });
                }
            }),
        }
        let mut bytes = Vec::new();
        for (label, value) in all {
            if self.key == COUNTERS_LABELS {
                let end = bytes.len().saturating_add(STRING_BYTES);
                bytes.extend(label.as_bytes());
                bytes.resize(end, 0);
            } else {
                // Values wrap around.
                bytes.extend((value as u32).to_ne_bytes());
            }
        }
        self.bytes(&bytes)
    }

    fn answer(&self, of: InfoSubject) -> Result<(), Return> {
        let of_endpoint = of.board();
        match self.key {
            1 => self.number(nic::count()),
            2 => {
                let mut ids = Vec::new();
                for number in 0..nic::count() {
                    ids.extend(nic::of(number)?.nic.to_ne_bytes());
                }
                ids.extend([0; 8]);
                self.bytes(&ids)
            }
            3 => self.number(u32::from(causeway_endpoint::limits::ENDPOINT_ANY)),
            4 => self.number(u32::MAX),
            5 => self.number(u32::try_from(COUNTERS).unwrap_or(u32::MAX)),
            COUNTERS_LABELS | COUNTERS_VALUES => self.counters(of),
            8..=10 => self.board(of_endpoint).and_then(|_| self.string("N/A (Causeway)")),
            11 => self.board(of_endpoint).and_then(|_| self.number(1)),
            12 => self.number(u32::try_from(SMALL_BYTES_MAX).unwrap_or(u32::MAX)),
            13 => self.number(u32::try_from(MEDIUM_BYTES_MAX).unwrap_or(u32::MAX)),
            // Any slot: NICs are memory of the daemon.
            14 => self.board(of_endpoint).and_then(|_| self.number(u32::MAX)),
            // MX_NET_ETHER, MX_SPEED_10G.
            15 | 16 => self.board(of_endpoint).and_then(|_| self.number(1)),
            _ => Err(Return::BadInfoKey),
        }
    }
}

/// `mx_get_info`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_get_info(
    handle: *mut c_void,
    key: u32,
    value: CallerPtr<u8>,
    len: u32,
    into: CallerPtr<u8>,
    room: u32,
) -> Code {
    let look = || {
        initialized()?;
        let of = match handle.is_null() {
            true => InfoSubject(None),
            false => {
                let mut locked = table::lock(handle)?;
                let endpoint = locked.endpoint();
                InfoSubject(Some((endpoint.board, endpoint.counters())))
            }
        };
        Query { key, value, len, into, room }.answer(of)
    };
    finish_call(handle, c"mx_get_info", look())
}

/// `mx_hostname_to_nic_id`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_hostname_to_nic_id(name: CallerPtr<c_char>, into: CallerPtr<u64>) -> Code {
    let look = || {
        initialized()?;
        let name = text(name, HOSTNAME_MAX).ok_or(Return::BadHostnameArgs)?;
        put(into, nic::find(&name)?, Return::BadHostnameArgs)
    };
    errors::finish(c"mx_hostname_to_nic_id", look())
}

/// `mx_nic_id_to_hostname`: writes up to 80 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mx_nic_id_to_hostname(nic: u64, into: CallerPtr<c_char>) -> Code {
    let look = || {
        initialized()?;
        let mut name = nic::name(nic)?.into_bytes();
        name.truncate(HOSTNAME_MAX.saturating_sub(1));
        name.push(0);
        // SAFETY: the caller guarantees `HOSTNAME_MAX` bytes, which suffice.
        unsafe { put_bytes(into, 0, &name, Return::BadHostnameArgs) }
    };
    errors::finish(c"mx_nic_id_to_hostname", look())
}

/// `mx_board_number_to_nic_id`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_board_number_to_nic_id(number: u32, into: CallerPtr<u64>) -> Code {
    let look = || {
        initialized()?;
        put(into, nic::of(number)?.nic, Return::BadParamVal)
    };
    errors::finish(c"mx_board_number_to_nic_id", look())
}

/// `mx_nic_id_to_board_number`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_nic_id_to_board_number(nic: u64, into: CallerPtr<u32>) -> Code {
    let look = || {
        initialized()?;
        let is = |number: &u32| nic::of(*number).is_ok_and(|board| board.nic == nic);
        let number = (0..nic::count()).find(is).ok_or(Return::NicNotFound)?;
        put(into, number, Return::BadParamVal)
    };
    errors::finish(c"mx_nic_id_to_board_number", look())
}

/// `mx_open_board`: the handle is the number of the NIC.
#[unsafe(no_mangle)]
pub extern "C" fn mx_open_board(number: c_int, into: CallerPtr<c_int>) -> Code {
    let look = || {
        let known = u32::try_from(number).is_ok_and(|number| number < nic::count());
        if known { put(into, number, Return::BadParamVal) } else { Err(Return::BoardUnknown) }
    };
    errors::finish(c"mx_open_board", look())
}

/// `mx__get_mapper_state`: the first word of `mx_mapper_state_t` selects the NIC.
#[unsafe(no_mangle)]
pub extern "C" fn mx__get_mapper_state(_handle: c_int, state: CallerPtr<u32>) -> Code {
    let look = || {
        let number = get(state, Return::BadParamVal)?;
        let [_, _, mac @ ..] = nic::of(number)?.nic.to_be_bytes();
        let mut bytes = [0_u8; 32];
        let (head, tail) = bytes.split_at_mut(8);
        // Address of the mapper (that of the NIC, because the daemon maps) and port 0; then: map
        // version, hosts, network configured, routes valid, level, flags.
        head.iter_mut().zip(mac).for_each(|(to, from)| *to = from);
        let words = [1_u32, 1, 1, 1, 0, 0].map(u32::to_ne_bytes);
        tail.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
        // SAFETY: the structure has these bytes behind its first word.
        unsafe { put_bytes(state, size_of::<u32>(), &bytes, Return::BadParamVal) }
    };
    errors::finish(c"mx__get_mapper_state", look())
}
