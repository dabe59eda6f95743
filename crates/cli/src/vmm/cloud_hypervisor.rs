//! Arguments of Cloud Hypervisor that attach the devices of a guest.
//!
//! Network devices are `--net vhost_user=on`, socket devices `--generic-vhost-user` (release 53 and
//! later), adapters `--user-device`, which Cloud Hypervisor calls experimental. Only network
//! devices can listen: another port that connects to its VMM is refused. The arguments follow the
//! documentation of release 54 and no test runs the program: the order of its vhost-user messages
//! is a script in the tests of `attach`. [`super::attach`] is the caller.

use super::device::{Device, DeviceKind, NetDevice};
use super::output::{Argument, Attachment, Parts};
use super::{AttachError, Machine, quote, untried};

/// Entries of a virtqueue: the default of Cloud Hypervisor for network devices.
const QUEUE_SIZE: u16 = 256;

/// Returns the arguments of a machine, to append to `cloud-hypervisor`.
///
/// # Errors
/// [`AttachError`]: Cloud Hypervisor cannot listen for a device.
pub fn attachment(machine: &Machine) -> Result<Attachment, AttachError> {
    if let Some(device) = machine.further().find(|device| device.is_listener) {
        let port = device.port.clone();
        return Err(AttachError::CannotListen { port, vmm: "Cloud Hypervisor's socket device" });
    }
    let memory = format!("size={},shared=on", machine.memory());
    let mut arguments = vec![Argument::new("--memory", memory)];
    let of_kind =
        |option, values: Vec<String>| (!values.is_empty()).then_some(Argument { option, values });
    let nets = machine.nets().map(|(device, net)| net_values(device, net));
    arguments.extend(of_kind("--net", nets.collect()));
    let sockets = |wanted: DeviceKind| {
        let found = machine.devices.iter().filter(move |device| device.kind == wanted);
        found.map(|device| quote::cloud_hypervisor(&device.socket))
    };
    let vsocks = sockets(DeviceKind::Vsock).map(|path| {
        format!(
            "device_type=vsock,socket={path},queue_sizes=[{QUEUE_SIZE},{QUEUE_SIZE},{QUEUE_SIZE}]"
        )
    });
    arguments.extend(of_kind("--generic-vhost-user", vsocks.collect()));
    let adapters = sockets(DeviceKind::Adapter).map(|path| format!("socket={path}"));
    arguments.extend(of_kind("--user-device", adapters.collect()));
    let (vmm, notes) = ("cloud-hypervisor", notes(machine));
    Ok(Attachment { vmm, version: None, notes, parts: Parts::Arguments(arguments) })
}

/// Returns the values of a network device. Its checksum offload includes the others.
fn net_values(device: &Device, net: &NetDevice) -> String {
    let (path, mac) = (quote::cloud_hypervisor(&device.socket), quote::cloud_hypervisor(&net.mac));
    let queues = net.queues();
    let mut values = format!(
        "vhost_user=on,socket={path},mac={mac},num_queues={queues},queue_size={QUEUE_SIZE}"
    );
    if device.is_listener {
        values.push_str(",vhost_mode=server");
    }
    if let Some(mtu) = net.mtu {
        values.push_str(&format!(",mtu={mtu}"));
    }
    if !net.has_offloads {
        values.push_str(",offload_csum=off,offload_tso=off,offload_ufo=off");
    }
    values
}

/// Returns conditions of the arguments.
fn notes(machine: &Machine) -> Vec<String> {
    let mut notes = vec![untried("the program", "Cloud Hypervisor 54")];
    notes.push(machine.memory_note());
    let has = |wanted: &DeviceKind| machine.devices.iter().any(|device| device.kind == *wanted);
    let pairs = machine.nets().map(|(_, net)| net.queue_pairs).max().unwrap_or_default();
    if pairs > 1 {
        notes.push(format!(
            "{pairs} queue pairs need as many processors: --cpus boot={pairs} or more."
        ));
    }
    if has(&DeviceKind::Vsock) {
        notes.push(
            "The socket device needs Cloud Hypervisor 53; release 52 has virtio_id=19 in place of \
             device_type=vsock, and older releases have --vsock only, which reaches the host and \
             no other guest."
                .into(),
        );
    }
    if has(&DeviceKind::Adapter) {
        notes.push(
            "Cloud Hypervisor calls --user-device (vfio-user) experimental. Use QEMU 10.1 or later \
             for RDMA in production."
                .into(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::device::samples::{
        adapter, listening, net, odd_vsock, usual_net, vsock, xdp_net,
    };
    use super::*;

    #[test]
    fn attach_cloud_hypervisor_prints_the_golden_lines() {
        let devices = vec![net(4), usual_net(), vsock(), adapter()];
        let all = attachment(&Machine::new(devices, "1536M".parse().ok())).unwrap();
        assert_eq!(
            all.lines().unwrap(),
            "--memory\nsize=1536M,shared=on\n--net\n\
             vhost_user=on,socket=/run/c/1.sock,mac=52:54:00:00:00:01,num_queues=8,queue_size=256,\
             mtu=9000\n\
             vhost_user=on,socket=/run/c/2.sock,mac=52:54:00:00:00:02,num_queues=2,queue_size=256,\
             mtu=1500\n\
             --generic-vhost-user\n\
             device_type=vsock,socket=/run/c/v.sock,queue_sizes=[256,256,256]\n\
             --user-device\nsocket=/run/c/r.sock\n"
        );
        let text = all.text();
        assert!(text.contains("--cpus boot=4") && text.contains("experimental"), "{text}");
        assert!(text.contains("'device_type=vsock,socket=/run/c/v.sock,queue_sizes=["), "{text}");
        assert!(text.contains("not tried"), "{text}");
    }

    #[test]
    fn attach_cloud_hypervisor_quotes_paths_and_omits_offloads() {
        let machine = Machine::new(vec![odd_vsock(), xdp_net(1)], None);
        let lines = attachment(&machine).unwrap().lines().unwrap();
        assert!(lines.contains("socket=\"/a b,c'd<&>\",queue_sizes="), "{lines}");
        assert!(lines.contains(",offload_csum=off,offload_tso=off,offload_ufo=off\n"), "{lines}");
        assert!(lines.contains("size=1G,shared=on"), "{lines}");
    }

    #[test]
    fn attach_cloud_hypervisor_listens_for_network_ports_that_connect() {
        let machine = Machine::new(vec![listening(usual_net())], None);
        let lines = attachment(&machine).unwrap().lines().unwrap();
        assert!(lines.contains(",queue_size=256,vhost_mode=server,mtu=1500\n"), "{lines}");
        let machine = Machine::new(vec![listening(vsock())], None);
        let error = attachment(&machine).unwrap_err().to_string();
        assert!(error.contains("port 1-vsock") && error.contains("cannot listen"), "{error}");
    }
}
