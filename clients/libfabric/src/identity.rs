//! Name and version of the provider, which the core, the information lists and the log show.

use crate::abi::version;

/// The provider's name in libfabric.
pub const NAME: &str = "causeway";
/// The provider's version.
pub const VERSION: u32 = version(0, 1);
