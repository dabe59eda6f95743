//! The host's key of signatures: a file in the state directory, made at the first start.
//!
//! `main` reads it for the verb `run`, before the sandbox. [`crate::join`] makes the key of tunnels
//! with [`random`]. The mode of a file that exists is not examined.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use causeway_cluster::SigningKey;
use zeroize::Zeroizing;

use crate::new_file;

/// The file of the key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("signing key {path}: {text}")]
pub struct KeyFileError {
    path: std::path::PathBuf,
    text: String,
}

/// Reads the key, or makes one with mode 0600 if the file does not exist.
///
/// # Errors
/// The file cannot be read or made, or has no key in its first 1,024 bytes.
pub fn read_or_make(path: &Path) -> Result<SigningKey, KeyFileError> {
    let wrong = |text: String| KeyFileError { path: path.to_owned(), text };
    match File::open(path) {
        Ok(file) => {
            let mut text = Zeroizing::new(String::new());
            let read = file.take(1_024).read_to_string(&mut text);
            read.map_err(|error| wrong(error.to_string()))?;
            text.trim().parse().map_err(|error: causeway_cluster::sign::TextError| {
                wrong(format!("{error}; remove the file, and a new key is made"))
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = make().map_err(wrong)?;
            let text = Zeroizing::new(format!("{}\n", key.to_text().as_str()));
            let written = new_file::replace(path, text.as_bytes(), 0o600);
            written.map_err(|error| wrong(error.to_string()))?;
            Ok(key)
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Makes a key of random bytes of the kernel.
fn make() -> Result<SigningKey, String> {
    let seed = random().map_err(|error| error.to_string())?;
    SigningKey::new(*seed).map_err(|error| error.to_string())
}

/// Returns random bytes of the kernel; at most 256.
///
/// # Errors
/// The kernel has none.
pub fn random<const N: usize>() -> std::io::Result<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0_u8; N]);
    let flags = rustix::rand::GetRandomFlags::empty();
    if rustix::rand::getrandom(bytes.as_mut_slice(), flags)? == N {
        return Ok(bytes);
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use causeway_testing::folder::Folder;

    use super::*;

    #[test]
    fn keys_are_made_once_and_replace_the_rest_of_a_crash() {
        let folder = Folder::new("keys");
        let (path, beside) = (folder.join("signing.key"), folder.join("signing.new"));
        std::fs::write(&beside, b"").unwrap();
        let key = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap().public(), key.public());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!beside.exists());
    }
}
