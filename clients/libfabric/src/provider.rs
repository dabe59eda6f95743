//! The entry point `fi_prov_ini`, and the provider's description.
//!
//! libfabric's core calls the entry point once after it loads the library, and reaches everything
//! else through the functions of the description: `info::getinfo` and `shell::fabric::open`. The
//! description is static and belongs to the core from then on; the provider neither reads nor
//! changes it. Loading starts no thread and contacts no daemon. The library stays loaded until the
//! process ends (`-z nodelete`), so the function `cleanup` releases nothing.

use std::cell::UnsafeCell;

use crate::abi::{FiContext, FiProvider, version};
use crate::identity::VERSION;

/// The version of libfabric's interface. The core skips providers with a version below the
/// application's, so this is above any in use.
const INTERFACE: u32 = version(2, 99);

/// The description, to which the core writes its context.
struct Description(UnsafeCell<FiProvider>);

// SAFETY: this crate only returns the address; afterwards the description belongs to the core,
// which has a lock of its own.
unsafe impl Sync for Description {}

static PROVIDER: Description = Description(UnsafeCell::new(FiProvider {
    version: VERSION,
    fi_version: INTERFACE,
    context: FiContext { internal: [std::ptr::null_mut(); 4] },
    name: c"causeway".as_ptr(),
    getinfo: crate::info::getinfo,
    fabric: crate::shell::fabric::open,
    cleanup,
}));

/// The provider keeps no global state that must be released.
extern "C" fn cleanup() {}

/// Returns the description of the provider. libfabric calls this after it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut FiProvider {
    PROVIDER.0.get()
}

#[cfg(test)]
mod tests {
    use super::fi_prov_ini;
    use crate::identity::NAME;

    #[test]
    fn provider_description_has_the_name() {
        // SAFETY: the description is static, and no code writes it in this process.
        let name = unsafe { std::ffi::CStr::from_ptr((*fi_prov_ini()).name) };
        assert_eq!(name.to_str(), Ok(NAME));
    }
}
