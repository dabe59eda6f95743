//! Arguments of crosvm that attach the devices of a guest.
//!
//! All devices are `--vhost-user`; crosvm's memory is always a shared file. crosvm has no option
//! for the address and the MTU of a network device and reads both from the port, and it takes as
//! many queues as the port has. It has no vfio-user: adapters are refused, and so is a port that
//! connects to its VMM. The arguments follow crosvm's documentation of August 2026 and no test runs
//! the program. [`super::attach`] is the caller.

use super::device::{Device, DeviceKind};
use super::output::{Argument, Attachment, Parts};
use super::{AttachError, Machine, quote, untried};

/// Entries of a virtqueue. crosvm's default of 32,768 is more than socket devices have, and a
/// network device would fill each ring with buffers.
const QUEUE_SIZE: u16 = 256;

/// Returns the arguments of a machine, to append to `crosvm run`.
///
/// # Errors
/// [`AttachError`]: crosvm has no device of a kind.
pub fn attachment(machine: &Machine) -> Result<Attachment, AttachError> {
    let mut arguments = vec![Argument::new("--mem", machine.memory().mib().to_string())];
    for device in &machine.devices {
        arguments.push(Argument::new("--vhost-user", of_device(device)?));
    }
    let mut notes = vec![untried("the program", "crosvm of August 2026"), machine.memory_note()];
    if let Some((device, _)) = machine.nets().find(|(_, net)| !net.has_offloads) {
        notes.push(format!(
            "Port {} offers no offloads, which crosvm passes to the guest by itself.",
            device.port
        ));
    }
    Ok(Attachment { vmm: "crosvm", version: None, notes, parts: Parts::Arguments(arguments) })
}

/// Returns the value of a device.
fn of_device(device: &Device) -> Result<String, AttachError> {
    if device.is_listener {
        let port = device.port.clone();
        return Err(AttachError::CannotListen { port, vmm: "crosvm" });
    }
    let kind = match device.kind {
        DeviceKind::Net(_) => "net",
        DeviceKind::Vsock => "vsock",
        DeviceKind::Adapter => {
            let port = device.port.clone();
            return Err(AttachError::NoAdapters { port, vmm: "crosvm" });
        }
    };
    let path = quote::crosvm(&device.socket);
    Ok(format!("type={kind},socket={path},max-queue-size={QUEUE_SIZE}"))
}

#[cfg(test)]
mod tests {
    use super::super::device::samples::{adapter, listening, net, odd_vsock, vsock, xdp_net};
    use super::*;

    #[test]
    fn attach_crosvm_prints_the_golden_lines() {
        let machine = Machine::new(vec![net(1), vsock()], "2G".parse().ok());
        let all = attachment(&machine).unwrap();
        assert_eq!(
            all.lines().unwrap(),
            "--mem\n2048\n--vhost-user\ntype=net,socket=/run/c/1.sock,max-queue-size=256\n\
             --vhost-user\ntype=vsock,socket=/run/c/v.sock,max-queue-size=256\n"
        );
        assert!(all.text().contains("not tried"), "{}", all.text());
    }

    #[test]
    fn attach_crosvm_quotes_paths_and_refuses_adapters() {
        let all = attachment(&Machine::new(vec![odd_vsock(), xdp_net(1)], None)).unwrap();
        let lines = all.lines().unwrap();
        assert!(lines.contains("socket=\"/a b,c'd<&>\",max-queue-size"), "{lines}");
        assert!(all.notes.iter().any(|note| note.contains("offloads")));
        let error = attachment(&Machine::new(vec![adapter()], None)).unwrap_err().to_string();
        assert!(error.contains("port 1-rdma") && error.contains("QEMU 10.1"), "{error}");
        let machine = Machine::new(vec![listening(vsock())], None);
        let error = attachment(&machine).unwrap_err().to_string();
        assert!(error.contains("crosvm cannot listen"), "{error}");
    }
}
