//! What the core finds: `fi_prov_ini` and what it gives.

use std::cell::UnsafeCell;

use crate::abi::{FiContext, FiProvider, version};

/// The provider's name.
pub const NAME: &str = "causeway";
/// Its version.
pub const VERSION: u32 = version(0, 1);
/// Of the interface: the core leaves out providers of an older version than the application's.
const INTERFACE: u32 = version(2, 99);

/// The core writes its context there.
struct Shared(UnsafeCell<FiProvider>);

// SAFETY: we only hand out where it is; the core, whose it is then, has a lock of its own.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(FiProvider {
    version: VERSION,
    fi_version: INTERFACE,
    context: FiContext { internal: [std::ptr::null_mut(); 4] },
    name: c"causeway".as_ptr(),
    getinfo: crate::info::getinfo,
    fabric: crate::fabric::open,
    cleanup,
}));

/// Nothing is left behind that would have to be cleaned up.
extern "C" fn cleanup() {}

/// What libfabric calls when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut FiProvider {
    PROVIDER.0.get()
}

#[cfg(test)]
mod tests {
    use super::{NAME, fi_prov_ini};

    #[test]
    fn the_core_finds_our_name() {
        // SAFETY: it is there for ever, and nobody writes it in this process.
        let name = unsafe { std::ffi::CStr::from_ptr((*fi_prov_ini()).name) };
        assert_eq!(name.to_str(), Ok(NAME));
    }
}
