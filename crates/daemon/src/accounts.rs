//! Users and groups of the host, as /etc/passwd, /etc/group and /proc tell them.

use std::fs;

/// The number of a group, by name, or the number itself.
pub fn group_id(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string("/etc/group").map_err(|e| format!("/etc/group: {e}"))?;
    find_group(&text, name)
        .ok_or_else(|| format!("group {name:?} is not in /etc/group; add it with: groupadd {name}"))
}

fn find_group(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)?.parse().ok()
    })
}

/// Whether process `pid`, running as `uid`, has `gid` among its supplementary groups.
///
/// The number could be another process's by now. As the user must still be the same, that
/// lends nobody a group that this user does not have anyway.
pub fn process_has_group(pid: i32, uid: u32, gid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| status_has_group(&status, uid, gid))
}

fn status_has_group(status: &str, uid: u32, gid: u32) -> bool {
    let values = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        line.unwrap_or("").split_whitespace().filter_map(|n| n.parse().ok()).collect()
    };
    // Real, effective, saved and file-system user: a set-uid program is not this user.
    values("Uid:") == [uid; 4] && values("Groups:").contains(&gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name_and_number() {
        let text = "root:x:0:\nkvm:x:106:qemu,libvirt-qemu\nbad\ncauseway:x:9x:\n";
        assert_eq!(find_group(text, "kvm"), Some(106));
        assert_eq!(find_group(text, "kv"), None);
        assert_eq!(find_group(text, "causeway"), None);
        assert_eq!(group_id("77"), Ok(77));
        assert!(group_id("no-such-group-here").unwrap_err().contains("groupadd"));
    }

    #[test]
    fn a_process_has_its_own_groups_only_as_its_own_user() {
        let status = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\nGroups:\t20 106 \n";
        assert!(status_has_group(status, 7, 106));
        assert!(!status_has_group(status, 7, 6));
        assert!(!status_has_group(status, 8, 106));
        assert!(!status_has_group(&status.replace("7\t7\nGid", "0\t7\nGid"), 7, 106));
        assert!(!status_has_group("", 7, 106));
    }
}
