//! The loaded library: its functions, found once per process.
//!
//! The first call that needs the library loads it; after a failure the next call tries again. A
//! library that lacks one of the functions is refused as a whole, and stays loaded.

use std::sync::OnceLock;

use crate::abi;
use crate::error::Error;

/// Name of the library. The number is that of its binary interface.
const NAME: &str = "libibverbs.so.1";

/// Declares the functions and finds them by their names.
macro_rules! functions {
    ($($field:ident: $type:ident = $name:literal,)*) => {
        /// Functions of the library.
        pub struct Library {
            $(pub $field: abi::$type,)*
        }

        impl Library {
            /// Finds the functions. The library stays loaded until the process ends.
            fn find(library: &'static libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the types are those of the functions in the library's interface. The
                    // default version of a symbol is that of the installed header.
                    $($field: *unsafe { library.get::<abi::$type>($name) }?,)*
                })
            }
        }
    };
}

functions! {
    fork_init: ForkInit = b"ibv_fork_init\0",
    get_device_list: GetDeviceList = b"ibv_get_device_list\0",
    free_device_list: FreeDeviceList = b"ibv_free_device_list\0",
    get_device_name: GetDeviceName = b"ibv_get_device_name\0",
    open_device: OpenDevice = b"ibv_open_device\0",
    close_device: CloseDevice = b"ibv_close_device\0",
    query_port: QueryPort = b"ibv_query_port\0",
    query_gid: QueryGidEx = b"_ibv_query_gid_ex\0",
    alloc_pd: AllocPd = b"ibv_alloc_pd\0",
    dealloc_pd: DeallocPd = b"ibv_dealloc_pd\0",
    reg_mr: RegMr = b"ibv_reg_mr\0",
    dereg_mr: DeregMr = b"ibv_dereg_mr\0",
    create_comp_channel: CreateCompChannel = b"ibv_create_comp_channel\0",
    destroy_comp_channel: DestroyCompChannel = b"ibv_destroy_comp_channel\0",
    create_cq: CreateCq = b"ibv_create_cq\0",
    destroy_cq: DestroyCq = b"ibv_destroy_cq\0",
    get_cq_event: GetCqEvent = b"ibv_get_cq_event\0",
    ack_cq_events: AckCqEvents = b"ibv_ack_cq_events\0",
    create_qp: CreateQp = b"ibv_create_qp\0",
    modify_qp: ModifyQp = b"ibv_modify_qp\0",
    destroy_qp: DestroyQp = b"ibv_destroy_qp\0",
    wc_status_str: WcStatusStr = b"ibv_wc_status_str\0",
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAME)
    }
}

impl Library {
    /// Returns the library of this process, and loads it if no call has succeeded before.
    ///
    /// # Errors
    /// [`Error::Library`]: the library is missing, or lacks a function.
    pub fn load() -> Result<&'static Self, Error> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        // SAFETY: the library's initialisers have no requirement.
        let loaded = unsafe { libloading::Library::new(NAME) }.map_err(Error::Library)?;
        // Its providers stay registered, so that it must not be unloaded.
        let found = Self::find(Box::leak(Box::new(loaded))).map_err(Error::Library)?;
        // A failure means that registered memory is not kept from children of old kernels.
        // SAFETY: the function has no arguments and may be called at any time.
        let _ = unsafe { (found.fork_init)() };
        Ok(LIBRARY.get_or_init(|| found))
    }
}
