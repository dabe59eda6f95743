//! Access rights of a grant.
//!
//! Rights are from the device's view: [`Rights::READ`] lets this process read the guest's bytes.
//! [`crate::Map`] checks them at each translation; regions of vhost-user always permit both. Rights
//! of registered regions, from the view of remote peers, are [`crate::Access`]. The rights do not
//! change the page protection of a mapping, which is always readable and writable. The type is a
//! plain value for any thread; its calls cannot fail.

bitflags::bitflags! {
    /// The accesses that a grant permits: any combination of reading and writing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Rights: u8 {
        /// Permits the device to read.
        const READ = 1;
        /// Permits the device to write.
        const WRITE = 2;
        /// Permits the device to read and to write.
        const READ_WRITE = 3;
    }
}
