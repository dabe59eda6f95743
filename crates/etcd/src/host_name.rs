//! The name of a host of a site: its length, and the name of this host.
//!
//! `main` and the verbs check each name here that an option, a token or the kernel gives; the
//! replica refuses records with a longer one. Reads the host name of the kernel, and no file of the
//! configuration. Runs in the caller's thread.

use causeway_cluster::limits::HOST_BYTES_MAX;
use causeway_model::Name;

use crate::records::VerbError;

/// Returns the name if it can be that of a host.
///
/// # Errors
/// The name has more than [`HOST_BYTES_MAX`] (40) bytes.
pub fn checked(name: Name) -> Result<Name, VerbError> {
    if name.as_str().len() > HOST_BYTES_MAX {
        let text = format!(
            "host {name}: expected at most {HOST_BYTES_MAX} bytes; give a shorter name (--host)"
        );
        return Err(VerbError::Conflict(text));
    }
    Ok(name)
}

/// Returns the host name of the kernel up to its first dot.
///
/// # Errors
/// The host name cannot be read, or is no name of a host.
pub fn own() -> Result<Name, VerbError> {
    let path = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(path);
    let name = name.map_err(|error| VerbError::File(path.into(), error.to_string()))?;
    let short = name.trim().split('.').next().unwrap_or_default();
    let name = short.parse().map_err(|error: causeway_model::SpecError| {
        VerbError::Conflict(format!("host name: {error}; give --host NAME"))
    })?;
    checked(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_have_a_greatest_length() {
        let name = |bytes| "h".repeat(bytes).parse().unwrap();
        assert_eq!(checked(name(HOST_BYTES_MAX)).unwrap(), name(HOST_BYTES_MAX));
        let error = checked(name(HOST_BYTES_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("at most 40 bytes") && error.contains("--host"), "{error}");
    }
}
