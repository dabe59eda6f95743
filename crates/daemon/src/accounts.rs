//! Users and groups of the host, as /etc/passwd, /etc/group and /proc tell them.

use std::fs;

/// The number of a group, by name, or the number itself.
pub fn group_id(name: &str) -> Result<u32, String> {
    id("group", "/etc/group", name, "groupadd")
}

/// The number of a user, by name, or the number itself.
pub fn user_id(name: &str) -> Result<u32, String> {
    id("user", "/etc/passwd", name, "useradd")
}

fn id(what: &str, file: &str, name: &str, add: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    find(&text, name)
        .ok_or_else(|| format!("{what} {name:?} is not in {file}; add it with: {add} {name}"))
}

/// The third field of the line of an account: group(5) and passwd(5) have the number there.
fn find(text: &str, name: &str) -> Option<u32> {
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
        assert_eq!(find(text, "kvm"), Some(106));
        assert_eq!(find(text, "kv"), None);
        assert_eq!(find(text, "causeway"), None);
        let users = "root:x:0:0:root:/root:/bin/sh\nqemu:x:64055:106::/:/bin/false\n";
        assert_eq!((find(users, "qemu"), user_id("78")), (Some(64055), Ok(78)));
        assert!(user_id("no-such-user-here").unwrap_err().contains("useradd"));
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
