//! Access rights of a grant.
//!
//! Rights are from the device's view: [`Rights::READ`] lets this process read the guest's bytes.
//! [`crate::Map`] checks them at each translation; regions of vhost-user always permit both. Rights
//! of registered regions, from the view of remote peers, are [`crate::Access`]. The rights do not
//! change the page protection of a mapping, which is always readable and writable.

/// The accesses that a grant permits: any combination of reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// Permits no access.
    pub const NONE: Self = Self(0);
    /// Permits the device to read.
    pub const READ: Self = Self(1);
    /// Permits the device to write.
    pub const WRITE: Self = Self(2);
    /// Permits the device to read and to write.
    pub const READ_WRITE: Self = Self(3);

    /// Returns whether every access of `needed` is permitted.
    #[inline]
    pub const fn contains(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Returns the accesses that either side permits.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
