//! Another user, as whom root goes on with fewer rights.

use std::{fs, ptr};

use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use crate::capability::{CAP_SETGID, CAP_SETUID, Rights};
use crate::error::On;
use crate::{CallError, CallResult};

/// A user of this system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The number.
    pub uid: u32,
    /// The number of the user's first group.
    pub gid: u32,
}

/// Whether this process is root, in its own user namespace.
pub fn is_root() -> bool {
    geteuid().is_root()
}

impl User {
    /// Looks for a user by name in `/etc/passwd` (`passwd(5)`); a file that cannot be read has none.
    pub fn find(name: &str) -> Option<Self> {
        let list = fs::read("/etc/passwd").ok()?;
        Self::find_in(&String::from_utf8_lossy(&list), name)
    }

    fn find_in(list: &str, name: &str) -> Option<Self> {
        let mut users = list.lines().filter_map(|line| {
            let mut fields = line.split(':');
            Some(Self {
                name: fields.next()?.to_owned(),
                uid: fields.nth(1)?.parse().ok()?,
                gid: fields.next()?.parse().ok()?,
            })
        });
        users.find(|user| user.name == name)
    }

    /// Whether it is this process's own user.
    pub fn is_own(&self) -> bool {
        geteuid().as_raw() == self.uid
    }

    /// Why this process cannot become the user for good, if it cannot.
    pub fn obstacle(&self) -> Option<String> {
        let (needed, rights) = ([CAP_SETUID, CAP_SETGID], Rights::own());
        if !needed.iter().all(|one| rights.has(*one)) {
            return Some(match rights.is_root {
                true => rights.remedy(&needed),
                false => "only root becomes another user".to_owned(),
            });
        }
        let maps = [
            ("/proc/self/uid_map", self.uid),
            ("/proc/self/gid_map", self.gid),
        ];
        let lacks = |(map, id): &(&str, u32)| {
            fs::read_to_string(map).is_ok_and(|map| !is_mapped(&map, *id))
        };
        let lacking = maps.iter().find(|one| lacks(one));
        lacking.map(|(_, id)| format!("this user namespace has no number {id}"))
    }

    /// Makes the calling thread, and all that it starts from now on, this user for good: no other
    /// group, no capability, and no program that is executed gives any back (`no_new_privs`). The C
    /// library sees to it that other threads change their user as well; the rest they keep, so that
    /// there should be none yet.
    ///
    /// # Errors
    /// `EPERM`, `EINVAL`: see [`User::obstacle`].
    pub fn become_for_good(&self) -> CallResult<()> {
        let Self { name, uid, gid } = self;
        let done = |call, answer: libc::c_int| match answer {
            0 => Ok(()),
            _ => Err(CallError::last(call, name)),
        };
        set_no_new_privs(true).on("prctl PR_SET_NO_NEW_PRIVS", name)?;
        // SAFETY: an empty list is not read.
        done("setgroups", unsafe { libc::setgroups(0, ptr::null()) })?;
        // SAFETY: numbers go in, and nothing comes back.
        done("setresgid", unsafe { libc::setresgid(*gid, *gid, *gid) })?;
        // SAFETY: as above.
        done("setresuid", unsafe { libc::setresuid(*uid, *uid, *uid) })?;
        // The kernel has taken all but the inheritable ones, unless a bit of this process forbids it.
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).on("capset", name)?;
        let is_done = geteuid() == Uid::from_raw(*uid) && getegid() == Gid::from_raw(*gid);
        assert!(is_done, "the kernel says yes and does no");
        Ok(())
    }
}

/// Whether this user believes the files and processes of a user: its own, and those of root.
pub fn is_believed(uid: u32) -> bool {
    [0, geteuid().as_raw()].contains(&uid) && !is_unmapped(uid)
}

/// Whether a number has no user in this process's user namespace: one whose own number is not known
/// here is shown as it (`user_namespaces(7)`), root of the machine among others.
pub(crate) fn is_unmapped(id: u32) -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_mapped(&map, id))
}

/// Whether a number exists in the user namespace of a map (`user_namespaces(7)`): lines of the first
/// number inside, the first outside, and how many.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
        match (words.next(), words.nth(1)) {
            (Some(Ok(first)), Some(Ok(count))) => {
                (first..first.saturating_add(count)).contains(&u64::from(id))
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn users_are_found_by_name() {
        let list = "root:x:0:0:root:/root:/bin/sh\n# no:x\nbad:x:y:1::/:\nnobody:*:99:98:a:b:c\n";
        let ids = |name| User::find_in(list, name).map(|user| (user.uid, user.gid));
        assert_eq!((ids("root"), ids("nobody")), (Some((0, 0)), Some((99, 98))));
        assert_eq!((ids("bad"), ids("# no"), ids("")), (None, None, None));
        // A number that does not fit is none, and above all not 0.
        assert_eq!(User::find_in("a:x:4294967296:0:::", "a"), None);
        assert_eq!(User::find_in("a:x:-1:0:::", "a"), None);
    }

    #[test]
    fn a_map_says_which_numbers_there_are() {
        let whole = "         0          0 4294967295\n";
        assert!(is_mapped(whole, 0) && is_mapped(whole, 65_534));
        // That of an ordinary user who became root, and of a container.
        assert!(is_mapped("0 1000 1\n", 0) && !is_mapped("0 1000 1\n", 65_534));
        let container = "0 100000 1000\n65534 165534 1";
        assert!(is_mapped(container, 65_534) && !is_mapped(container, 65_535));
        assert!(!is_mapped("", 0) && !is_mapped("0 x 1", 5) && !is_mapped("0 0", 0));
    }

    proptest! {
        #[test]
        fn what_was_written_is_found(name in "[a-z][a-z0-9-]{0,9}", uid: u32, gid: u32) {
            let found = User::find_in(&format!("{name}:x:{uid}:{gid}:::\n"), &name);
            prop_assert_eq!(found, Some(User { name, uid, gid }));
        }

        #[test]
        fn never_panics(text in "\\PC*", name in "\\PC*", id: u32, numbers: [u64; 3]) {
            let _ = (is_mapped(&text, id), User::find_in(&text, &name));
            let [first, outside, count] = numbers;
            let _ = is_mapped(&format!("{first} {outside} {count}"), id);
        }
    }

    #[test]
    fn nobody_is_refused_who_may_not_change() {
        let other = User {
            name: "other".to_owned(),
            uid: u32::MAX - 1,
            gid: 0,
        };
        assert!(!other.is_own());
        if !Rights::own().has(CAP_SETUID) {
            assert!(other.obstacle().is_some());
        }
    }
}
