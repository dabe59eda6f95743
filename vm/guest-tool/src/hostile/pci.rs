//! A virtio PCI device accessed only through its configuration space.
//!
//! The PCI configuration access capability (virtio 1.3, section 4.1.4.9) is a window onto its
//! registers; sysfs provides the configuration space as a file for root. Accesses are slow: three
//! writes to the file select a register, unless it is the last one again. A device without the
//! window, or a legacy device, is refused. [`Pci::take`] unbinds the driver, also of a device that
//! it then refuses; the drop does not bind it again ([`rebind`] does). A register set that the
//! device lacks is an error, an offset beyond it is not checked.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DEVICES: &str = "/sys/bus/pci/devices";
const DRIVER: &str = "/sys/bus/pci/drivers/virtio-pci";
const VENDOR: &str = "0x1af4";
/// Offset of the command register, and its bits for memory access and bus mastering.
const COMMAND: u64 = 4;
const MEMORY: u16 = 2;
const MASTER: u16 = 4;
/// Offset of the capability list's pointer, and the ID of vendor-specific capabilities.
const CAPABILITIES: u64 = 0x34;
const CAP_VENDOR: u8 = 9;
/// Maximum number of capabilities in a configuration space.
const CAPS_MAX: usize = 48;

/// Register sets of a virtio device (virtio 1.3, section 4.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Features, status and queues.
    Common = 1,
    /// Doorbells.
    Notify = 2,
    /// Device-specific configuration.
    Device = 4,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    kind: u8,
    bar: u8,
    offset: u32,
}

/// A device that is bound to no driver.
#[derive(Debug)]
pub struct Pci {
    config: File,
    places: Vec<Place>,
    /// Offset of the window in the configuration space.
    window: u64,
    /// Position of the window, once it was set: BAR, offset, length.
    selected: Option<(u8, u32, u8)>,
    /// Bytes between the doorbells of two queues (`notify_off_multiplier`).
    pub notify_step: u32,
}

/// Returns the address of the first device with a listed device ID.
fn find(numbers: &[&str]) -> io::Result<String> {
    let read = |dir: &Path, name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    for entry in fs::read_dir(DEVICES)? {
        let dir = entry?.path();
        let number = read(&dir, "device");
        if read(&dir, "vendor").trim() == VENDOR && numbers.contains(&number.trim()) {
            return Ok(dir.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no virtio device {numbers:?}")))
}

/// Returns the device to the kernel's driver.
///
/// # Errors
/// When there is no such device or the driver does not bind.
pub fn rebind(numbers: &[&str]) -> io::Result<()> {
    fs::write(Path::new(DRIVER).join("bind"), find(numbers)?)
}

impl Pci {
    /// Unbinds the device from the kernel's driver, if it is bound.
    ///
    /// # Errors
    /// When there is no such device, or it lacks a capability of a modern virtio device.
    pub fn take(numbers: &[&str]) -> io::Result<Self> {
        let address = find(numbers)?;
        let dir: PathBuf = Path::new(DEVICES).join(&address);
        if dir.join("driver").exists() {
            fs::write(dir.join("driver/unbind"), &address)?;
        }
        let config = OpenOptions::new().read(true).write(true).open(dir.join("config"))?;
        let mut pci =
            Self { config, places: Vec::new(), window: 0, selected: None, notify_step: 0 };
        pci.capabilities()?;
        pci.master(true)?;
        Ok(pci)
    }

    /// Returns a device with a plain file as its configuration space, and a function that reads the
    /// offset and the value of the last access to a register.
    #[cfg(test)]
    pub fn on_a_file() -> (Self, impl Fn() -> (u32, u8)) {
        const WINDOW: u64 = 0x40;
        let path = std::env::temp_dir().join(format!("causeway-pci-{}", std::process::id()));
        let config = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(path).unwrap();
        config.set_len(256).unwrap();
        let places = vec![Place { kind: Part::Common as u8, bar: 0, offset: 0 }];
        let pci = Self {
            config: config.try_clone().unwrap(),
            places,
            window: WINDOW,
            selected: None,
            notify_step: 0,
        };
        let last = move || {
            let (mut at, mut value) = ([0; 4], [0]);
            config.read_exact_at(&mut at, WINDOW + 8).unwrap();
            config.read_exact_at(&mut value, WINDOW + 16).unwrap();
            (u32::from_le_bytes(at), value[0])
        };
        (pci, last)
    }

    fn byte(&self, at: u64) -> io::Result<u8> {
        let mut byte = [0];
        self.config.read_exact_at(&mut byte, at)?;
        Ok(byte[0])
    }

    fn long(&self, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.config.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn capabilities(&mut self) -> io::Result<()> {
        let mut at = u64::from(self.byte(CAPABILITIES)?);
        for _ in 0..CAPS_MAX {
            if at == 0 {
                break;
            }
            if self.byte(at)? == CAP_VENDOR {
                let kind = self.byte(at + 3)?;
                match kind {
                    5 => self.window = at,
                    2 => self.notify_step = self.long(at + 16)?,
                    _ => {}
                }
                let (bar, offset) = (self.byte(at + 4)?, self.long(at + 8)?);
                self.places.push(Place { kind, bar, offset });
            }
            at = u64::from(self.byte(at + 1)?);
        }
        if self.window == 0 || self.places.len() < 4 {
            return Err(io::Error::other("not a modern virtio device"));
        }
        Ok(())
    }

    /// Enables or disables bus mastering, the device's access to memory.
    ///
    /// # Errors
    /// The write error of the command register.
    pub fn master(&self, on: bool) -> io::Result<()> {
        let command = if on { MEMORY | MASTER } else { MEMORY };
        self.config.write_all_at(&command.to_le_bytes(), COMMAND)
    }

    fn select(&mut self, part: Part, at: u32, len: u8) -> io::Result<()> {
        let place = self.places.iter().find(|p| p.kind == part as u8);
        let place = place
            .ok_or_else(|| io::Error::other(format!("the device has no {part:?} registers")))?;
        let selected = (place.bar, place.offset + at, len);
        if self.selected == Some(selected) {
            return Ok(());
        }
        self.config.write_all_at(&[selected.0], self.window + 4)?;
        self.config.write_all_at(&selected.1.to_le_bytes(), self.window + 8)?;
        self.config.write_all_at(&u32::from(len).to_le_bytes(), self.window + 12)?;
        self.selected = Some(selected);
        Ok(())
    }

    /// Writes a register of 1, 2 or 4 bytes.
    ///
    /// # Errors
    /// The error of the configuration space's file.
    pub fn write(&mut self, part: Part, at: u32, value: &[u8]) -> io::Result<()> {
        self.select(part, at, u8::try_from(value.len()).unwrap_or(4))?;
        self.config.write_all_at(value, self.window + 16)
    }

    /// Reads a register of `N` bytes: 1, 2 or 4.
    ///
    /// # Errors
    /// The error of the configuration space's file.
    pub fn read<const N: usize>(&mut self, part: Part, at: u32) -> io::Result<[u8; N]> {
        self.select(part, at, u8::try_from(N).unwrap_or(4))?;
        let mut bytes = [0; N];
        self.config.read_exact_at(&mut bytes, self.window + 16)?;
        Ok(bytes)
    }
}
