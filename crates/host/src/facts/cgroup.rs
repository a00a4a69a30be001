//! BPF programs of cgroups that decide what sockets receive.

use super::cgroup_mounts::{CgroupFolder, CgroupMounts};
use crate::root::Root;
use mpps_os::bpf::cgroup::{ingress_programs, program_name};
use mpps_os::text;
use std::fs::File;

/// A program that sees each packet for the sockets of a cgroup, and may drop it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressProgram {
    /// The group that it is attached to: `/system.slice/unbound.service`.
    pub group: String,
    /// Its name; systemd's are `sd_fw_ingress` and `restrict_ifaces_i`. Empty if not known.
    pub name: String,
    /// The directory of the group where it is mounted.
    pub folder: String,
}

impl IngressProgram {
    /// The programs in effect for the group of version 2 in this text of `/proc/PID/cgroup`, the
    /// nearest first. None if the kernel does not answer. A container sees only its own root.
    pub(super) fn above(root: &Root, mounts: &CgroupMounts, text: &str) -> Option<Vec<Self>> {
        let open = |folder: &CgroupFolder| {
            let file = File::open(root.path().join(text::to_bytes(&folder.path))).ok()?;
            let own = ingress_programs(&file, false).ok()?;
            Some((own, ingress_programs(&file, true).ok()?))
        };
        let all = mounts.groups(text, "").into_iter();
        let mut found = all
            .filter_map(|folder| {
                let programs = open(&folder)?;
                Some((folder, programs))
            })
            .peekable();
        let (_, (_, effective)) = found.peek()?;
        let effective = effective.clone();
        let programs = found.flat_map(|(folder, (own, _))| {
            let own = own.into_iter().filter(|one| effective.contains(one));
            let named = own.map(|program| Self {
                group: format!("/{}", folder.group),
                name: program_name(program).unwrap_or_default(),
                folder: folder.shown.clone(),
            });
            named.collect::<Vec<_>>()
        });
        Some(programs.collect())
    }

    /// The unit of systemd that has the group, if its name is one.
    pub fn unit(&self) -> Option<&str> {
        let (_, name) = self.group.rsplit_once('/')?;
        let kinds = [".service", ".slice", ".scope", ".socket"];
        kinds
            .iter()
            .any(|kind| name.ends_with(kind))
            .then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn where_there_are_no_cgroups_nothing_is_known() {
        let tree = fixture::tree(
            "sys/fs/cgroup/a/b = x\nproc/self/mountinfo = 1 2 0:3 / /sys/fs/cgroup rw - cgroup2 x rw",
        );
        let mounts = CgroupMounts::find(&tree.root);
        for text in ["", "0::/", "0::/a", "0::/c", "4:cpu:/a", "0::/no/such"] {
            assert_eq!(
                IngressProgram::above(&tree.root, &mounts, text),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn a_group_of_systemd_is_a_unit() {
        for (group, unit) in [
            ("/system.slice/unbound.service", Some("unbound.service")),
            ("/user.slice", Some("user.slice")),
            ("/docker/7", None),
            ("/", None),
        ] {
            let program = IngressProgram {
                group: group.to_owned(),
                name: String::new(),
                folder: String::new(),
            };
            assert_eq!(program.unit(), unit);
        }
    }
}
