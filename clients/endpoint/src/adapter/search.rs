//! Adapters of the machine with an active port, as the kernel lists them: without libibverbs, so
//! that a host without adapters does not load it.
//!
//! Devices and ports are in the order of their names; InfiniBand ports, files that cannot be read
//! and names that are not UTF-8 are left out, and all but the first 64 ports. Without RDMA in the
//! kernel the list is empty; there is no error. A port in the list may be of any vendor, and its
//! daemon may serve no sessions: the caller tries. Each call reads `/sys/class/infiniband` again.
//! Called by [`place`](crate::place) for the search of NICs and by [`session`](super::session) to
//! open the adapter, in the thread that opens or resumes an endpoint, or queries NICs.

use std::path::Path;

/// Folder of the kernel's RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";
/// Ports that are listed; a machine has few.
const PORTS_MAX: usize = 64;

/// Returns the names in a folder, sorted; none if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns device and port of each Ethernet port that is active.
pub fn find_active() -> Vec<(String, u8)> {
    find_in(Path::new(DEVICES))
}

fn find_in(folder: &Path) -> Vec<(String, u8)> {
    let mut found = Vec::new();
    for device in names(folder) {
        let ports = folder.join(&device).join("ports");
        for port in names(&ports) {
            let read = |file| std::fs::read_to_string(ports.join(&port).join(file)).ok();
            let is_active = read("state").is_some_and(|state| state.contains("ACTIVE"));
            let is_ethernet = read("link_layer").is_some_and(|link| link.trim() == "Ethernet");
            if let (true, true, Ok(number)) = (is_active, is_ethernet, port.parse()) {
                found.push((device.clone(), number));
            }
        }
    }
    found.truncate(PORTS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapter_search_lists_active_ethernet_ports_in_order() {
        let root = std::env::temp_dir().join(format!("causeway-adapters-{}", std::process::id()));
        let add = |device: &str, port: &str, state: &str, link: &str| {
            let folder = root.join(device).join("ports").join(port);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("state"), state).unwrap();
            std::fs::write(folder.join("link_layer"), link).unwrap();
        };
        add("mlx5_1", "1", "4: ACTIVE\n", "Ethernet\n");
        add("mlx5_0", "1", "1: DOWN\n", "Ethernet\n");
        add("mlx5_0", "2", "4: ACTIVE\n", "Ethernet\n");
        add("mlx5_2", "1", "4: ACTIVE\n", "InfiniBand\n");
        let found = find_in(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [("mlx5_0".to_owned(), 2), ("mlx5_1".to_owned(), 1)]);
        assert_eq!(find_in(&root), []);
    }
}
