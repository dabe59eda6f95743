//! Calls of libkrun's C interface that attach the devices of a guest.
//!
//! Each device is one `krun_add_vhost_user_device` with the number of the virtio device; a library
//! without vhost-user answers -ENOTSUP. libkrun makes the memory a shared file by itself, and reads
//! the address of a network device from the port. Refused are adapters, because libkrun has no
//! vfio-user, and a port that connects to its VMM. The calls follow the header of June 2026 and no
//! test runs the library. The application must have the variable `ctx`, its context of libkrun.
//! [`super::attach`] is the caller. Calls for ports of kind `stream` and `dgram` are those of
//! [`super::frames`].

use super::device::{Device, DeviceKind};
use super::output::{Attachment, Parts};
use super::quote::c;
use super::{AttachError, Machine, untried};

/// Numbers of virtio devices (virtio 1.3, section 5).
const VIRTIO_NET: u32 = 1;
const VIRTIO_VSOCK: u32 = 19;
/// Queues of a socket device.
const VSOCK_QUEUES: u32 = 3;

/// Returns the calls of a machine, to insert before `krun_start_enter`.
///
/// # Errors
/// [`AttachError`]: a device is an adapter, or connects to its VMM.
pub fn attachment(machine: &Machine) -> Result<Attachment, AttachError> {
    let mib = machine.memory().mib();
    let mut calls = vec![format!("krun_set_vm_config(ctx, 1 /* processors */, {mib} /* MiB */);")];
    if machine.devices.iter().any(|device| device.kind == DeviceKind::Vsock) {
        calls.push("krun_disable_implicit_vsock(ctx);".into());
    }
    for device in &machine.devices {
        calls.push(of_device(device)?);
    }
    let mut notes = vec![untried("the library", "libkrun of June 2026"), machine.memory_note()];
    notes.push(
        "libkrun must be built with VHOST_USER=1; krunvm and krunkit have no option for these \
         devices. Each call returns 0, or a negative error number."
            .into(),
    );
    Ok(Attachment { vmm: "libkrun", version: None, notes, parts: Parts::Calls(calls) })
}

/// Returns the call of a device.
fn of_device(device: &Device) -> Result<String, AttachError> {
    if device.is_listener {
        let port = device.port.clone();
        return Err(AttachError::CannotListen { port, vmm: "libkrun" });
    }
    let (number, name, queues) = match &device.kind {
        DeviceKind::Net(net) => (VIRTIO_NET, "net", net.queues()),
        DeviceKind::Vsock => (VIRTIO_VSOCK, "vsock", VSOCK_QUEUES),
        DeviceKind::Adapter => {
            let port = device.port.clone();
            return Err(AttachError::NoAdapters { port, vmm: "libkrun" });
        }
    };
    let (path, port) = (c(&device.socket), c(&device.port));
    Ok(format!(
        "krun_add_vhost_user_device(ctx, {number} /* {name} */, {path}, {port}, {queues}, NULL);"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::device::samples::{adapter, listening, net, odd_vsock, vsock};
    use super::*;

    #[test]
    fn attach_libkrun_prints_the_golden_calls() {
        let machine = Machine::new(vec![net(2), vsock()], "2G".parse().ok());
        let all = attachment(&machine).unwrap();
        assert_eq!(
            all.lines().unwrap(),
            "krun_set_vm_config(ctx, 1 /* processors */, 2048 /* MiB */);\n\
             krun_disable_implicit_vsock(ctx);\n\
             krun_add_vhost_user_device(ctx, 1 /* net */, \"/run/c/1.sock\", \"1-net\", 4, NULL);\n\
             krun_add_vhost_user_device(ctx, 19 /* vsock */, \"/run/c/v.sock\", \"1-vsock\", 3, \
             NULL);\n"
        );
        let text = all.text();
        assert!(text.starts_with("// ") && text.contains("VHOST_USER=1"), "{text}");
        assert_eq!(all.json()["calls"].as_array().unwrap().len(), 4);
        let one = attachment(&Machine::new(vec![net(1)], None)).unwrap();
        assert!(!one.lines().unwrap().contains("implicit_vsock"));
    }

    #[test]
    fn attach_libkrun_quotes_paths_and_refuses_adapters() {
        let lines = attachment(&Machine::new(vec![odd_vsock()], None)).unwrap().lines().unwrap();
        assert!(lines.contains("\"/a b,c'd<&>\", \"1-net\""), "{lines}");
        let error = attachment(&Machine::new(vec![adapter()], None)).unwrap_err().to_string();
        assert!(error.contains("port 1-rdma") && error.contains("QEMU 10.1"), "{error}");
        let machine = Machine::new(vec![listening(vsock())], None);
        let error = attachment(&machine).unwrap_err().to_string();
        assert!(error.contains("libkrun cannot listen"), "{error}");
    }
}
