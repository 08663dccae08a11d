//! Users and groups of the sandbox, from `/etc/passwd` and `/etc/group` (passwd(5), group(5)).

use crate::protocol::fault::{Fault, Outcome};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use sys::{O_NOCTTY, O_NONBLOCK};

const FILE_BYTES_MAX: u64 = 1 << 20;
/// Of a name that is told; longer ones are no names of a Linux user.
const NAME_BYTES_MAX: usize = 64;
/// The highest id of a sandbox.
const ID_MAX: u32 = 65_535;

#[derive(Debug, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
    pub shell: String,
}

/// Finds a user by name or numeric id. A number without an entry is a user of its own without a home. In `user:group`, the group, by name
/// or number, is the user's only one.
pub fn find(name: &str) -> Outcome<User> {
    find_with_group(name, &read("/etc/passwd"), &read("/etc/group"))
        .ok_or_else(|| Fault::invalid(format!("user: no user '{}' in the sandbox", name)))
}

/// The user and the group that `USER`, `USER:GROUP` or `:GROUP` names as the owner of files. A name has its group of `/etc/passwd`; a number is
/// the group's too, whoever has it (Dockerfile reference, `COPY --chown`).
pub fn owner(name: &str) -> Outcome<(u32, u32)> {
    owner_in(name, &read("/etc/passwd"), &read("/etc/group"))
        .ok_or_else(|| Fault::invalid(format!("owner: no user or group '{}' in the sandbox", name)))
}

fn owner_in(name: &str, passwd: &str, group: &str) -> Option<(u32, u32)> {
    let (user, wanted) = name.split_once(':').unwrap_or((name, ""));
    let (uid, own) = match (id(user), user) {
        (Some(id), _) => (id, id),
        (None, "") => (0, 0),
        _ => find_in(user, passwd, group).map(|user| (user.uid, user.gid))?,
    };
    let gid = match wanted {
        "" if name.is_empty() => return None,
        "" => own,
        "root" => group_id(wanted, group).unwrap_or(0),
        _ => id(wanted).or_else(|| group_id(wanted, group))?,
    };
    Some((uid, gid))
}

/// The name of a user id, if `/etc/passwd` has one.
pub fn name_of(uid: u32) -> Option<String> {
    let passwd = read("/etc/passwd");
    let fields = |line: &str| line.split(':').map(str::to_string).collect::<Vec<_>>();
    let line = passwd.lines().map(fields).find(|fields| fields.len() >= 7 && id(&fields[2]) == Some(uid))?;
    line.into_iter().next().filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)
}

fn find_with_group(name: &str, passwd: &str, group: &str) -> Option<User> {
    let (user, wanted) = match name.split_once(':') {
        None => return find_in(name, passwd, group),
        Some(parts) => parts,
    };
    let gid = id(wanted).or_else(|| group_id(wanted, group))?;
    find_in(user, passwd, group).map(|found| User { gid, groups: vec![gid], ..found })
}

fn group_id(name: &str, group: &str) -> Option<u32> {
    let line = group.lines().find(|line| line.split(':').next() == Some(name))?;
    id(line.split(':').nth(2)?)
}

fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id <= ID_MAX)
}

/// A pipe or a device at this path counts as an empty file: a read of it may wait for ever.
fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::options().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path) {
        if file.metadata().map_or(false, |of| of.is_file()) {
            let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn find_in(name: &str, passwd: &str, group: &str) -> Option<User> {
    let number = id(name);
    for line in passwd.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if fields.len() < 7 {
            continue;
        }
        if let (Some(uid), Some(gid)) = (id(fields[2]), id(fields[3])) {
            if fields[0] == name || number == Some(uid) {
                return Some(User {
                    name: fields[0].to_string(),
                    uid,
                    gid,
                    groups: groups_of(fields[0], gid, group),
                    home: fields[5].to_string(),
                    shell: fields[6].to_string(),
                });
            }
        }
    }
    let (home, label) = match (number, name) {
        (Some(0), _) | (None, "root") => ("/root", "root".to_string()),
        (Some(id), _) => ("/", id.to_string()),
        _ => return None,
    };
    let id = number.unwrap_or(0);
    Some(User { name: label, uid: id, gid: id, groups: vec![id], home: home.to_string(), shell: "/bin/sh".to_string() })
}

fn groups_of(name: &str, gid: u32, group: &str) -> Vec<u32> {
    let mut groups = vec![gid];
    for line in group.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if fields.len() < 4 || !fields[3].split(',').any(|member| member == name) {
            continue;
        }
        if let Some(gid) = id(fields[2]) {
            if !groups.contains(&gid) {
                groups.push(gid);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken line\nbad:x:nan:1::/:/bin/sh\n\
        ann:x:1000:1001:Ann,,,:/home/ann:/bin/zsh\n";
    const GROUP: &str =
        "root:x:0:\nann:x:1001:\ndocker:x:998:bob,ann\nsudo:x:27:annie\nown:x:1001:ann\nvideo:x:44:ann\n";

    #[test]
    fn a_name_and_its_number_are_the_same_user() {
        let ann = find_in("ann", PASSWD, GROUP).unwrap();
        assert_eq!((ann.uid, ann.gid, ann.home.as_str()), (1000, 1001, "/home/ann"));
        assert_eq!(ann.groups, vec![1001, 998, 44]);
        assert_eq!(find_in("1000", PASSWD, GROUP), Some(ann));
    }

    #[test]
    fn unknown_names_are_refused_and_unknown_numbers_stand_for_themselves() {
        assert_eq!(find_in("eve", PASSWD, GROUP), None);
        assert_eq!(find_in("bad", PASSWD, GROUP), None);
        assert_eq!(find_in("", PASSWD, GROUP), None);
        assert_eq!(find_in("-1", PASSWD, GROUP), None);
        assert_eq!(find_in("65536", PASSWD, GROUP), None);
        // chown(2) takes this id for "no change".
        assert_eq!(find_in("4294967295", PASSWD, GROUP), None);
        assert_eq!(find_in("big", "big:x:4294967295:0::/:/bin/sh\n", ""), None);
        let number = find_in("4242", PASSWD, GROUP).unwrap();
        assert_eq!((number.uid, number.gid, number.home.as_str()), (4242, 4242, "/"));
    }

    #[test]
    fn a_group_behind_a_colon_is_the_only_one() {
        let ann = find_with_group("ann:docker", PASSWD, GROUP).unwrap();
        assert_eq!((ann.uid, ann.gid, ann.groups), (1000, 998, vec![998]));
        let numbers = find_with_group("65532:65532", "", "").unwrap();
        assert_eq!((numbers.uid, numbers.gid), (65532, 65532));
        for name in ["ann:", "ann:eve", "eve:docker", ":docker", "ann:-1", "0:4294967295", "0:65536"] {
            assert_eq!(find_with_group(name, PASSWD, GROUP), None, "{}", name);
        }
        assert_eq!(find_with_group("ann", PASSWD, GROUP), find_in("ann", PASSWD, GROUP));
    }

    #[test]
    fn an_owner_has_the_group_of_its_name_or_of_its_number() {
        let owner = |name: &str| owner_in(name, PASSWD, GROUP);
        assert_eq!(
            (owner("ann"), owner("1000"), owner("1000:"), owner("ann:docker")),
            (Some((1000, 1001)), Some((1000, 1000)), Some((1000, 1000)), Some((1000, 998)))
        );
        assert_eq!((owner(":docker"), owner("5:6"), owner(":")), (Some((0, 998)), Some((5, 6)), Some((0, 0))));
        for name in ["", "eve", "ann:eve", ":eve", "65536", "ann:65536", "-1", "ann:docker:x", "4294967295"] {
            assert_eq!(owner(name), None, "{}", name);
        }
        assert_eq!((owner_in("root:root", "", ""), owner_in("0", "", "")), (Some((0, 0)), Some((0, 0))));
    }

    #[test]
    fn a_pipe_or_a_device_in_the_place_of_a_file_is_empty_at_once() {
        let folder = std::env::temp_dir().join(format!("atoll-users-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read(pipe.to_str().unwrap()), "");
        assert_eq!(read("/dev/zero"), "");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn root_exists_without_a_passwd_file() {
        let root = find_in("root", "", "").unwrap();
        assert_eq!((root.uid, root.home.as_str()), (0, "/root"));
    }
}
