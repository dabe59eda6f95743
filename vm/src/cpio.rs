//! Writes the "newc" archive that the kernel unpacks as its first root.
//!
//! [`crate::image`] and [`crate::rdma`] assemble the initramfs of guests with it: the caller adds
//! folders, files, links and devices, parents first, and writes the bytes of [`Archive::finish`] to
//! a file. The archive is built in memory and not compressed; all entries belong to root, files are
//! executable. Nothing is checked: a name that is added twice appears twice, and a file of 4 GiB or
//! more makes the archive unreadable.

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[], (0, 0));
    }

    /// Adds an executable file.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, 0o100_755, content, (0, 0));
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, name: &str, to: &str) {
        self.entry(name, 0o120_777, to.as_bytes(), (0, 0));
    }

    /// Adds a character device.
    pub fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, 0o020_600, &[], (major, minor));
    }

    /// Returns the finished archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    /// Appends a header, a name and a content.
    fn entry(&mut self, name: &str, mode: u32, content: &[u8], device: (u32, u32)) {
        self.inode += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Fills up to a multiple of 4 bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_entries_have_the_newc_layout() {
        let mut archive = Archive::default();
        archive.file("init", b"abcde");
        let bytes = archive.finish();
        assert!(bytes.starts_with(b"070701"));
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..121], b"abcde");
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[54..62], b"00000005", "file size field");
    }

    #[test]
    fn cpio_archive_is_readable_by_the_cpio_program() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/tool", b"content");
        archive.link("bin/sh", "tool");
        archive.device("console", 5, 1);
        let cpio = Command::new("cpio")
            .arg("-tv")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut cpio) = cpio else {
            eprintln!("skipped: no cpio on this machine");
            return;
        };
        cpio.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        let listed = String::from_utf8(cpio.wait_with_output().unwrap().stdout).unwrap();
        for want in ["drwxr-xr-x", "bin/tool", "bin/sh -> tool", "crw-------", "5,   1"] {
            assert!(listed.contains(want), "{want} not in:\n{listed}");
        }
    }
}
