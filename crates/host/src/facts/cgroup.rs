//! BPF programs of cgroups that decide what sockets receive.

use crate::root::Root;
use mpps_os::bpf::cgroup::{ingress_programs, program_name};
use std::fs::File;

/// A program that sees each packet for the sockets of a cgroup, and may drop it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressProgram {
    /// The group that it is attached to: `/system.slice/unbound.service`.
    pub group: String,
    /// Its name; systemd's are `sd_fw_ingress` and `restrict_ifaces_i`. Empty if not known.
    pub name: String,
}

impl IngressProgram {
    /// The programs in effect for the group of version 2 in this text of `/proc/PID/cgroup`, the
    /// nearest first. None if the kernel does not answer. A container sees only its own root.
    pub(super) fn above(root: &Root, text: &str) -> Option<Vec<Self>> {
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let open = |group: &str| {
            let places = ["", "unified/"];
            let paths = places.map(|place| format!("sys/fs/cgroup/{place}{group}"));
            let files = paths.iter().map(|path| File::open(root.path().join(path)));
            files.flatten().find_map(|file| {
                let own = ingress_programs(&file, false).ok()?;
                Some((own, ingress_programs(&file, true).ok()?))
            })
        };
        let parents = path.rmatch_indices('/').map(|(at, _)| &path[..at]);
        let all = std::iter::once(path).chain(parents);
        let all = all.chain((!path.is_empty()).then_some(""));
        let mut found = all
            .filter_map(|group| Some((group, open(group)?)))
            .peekable();
        let (_, (_, effective)) = found.peek()?.clone();
        let named = |group: &str, program| Self {
            group: format!("/{group}"),
            name: program_name(program).unwrap_or_default(),
        };
        let programs = found.flat_map(|(group, (own, _))| {
            let own = own.into_iter().filter(|one| effective.contains(one));
            own.map(|one| named(group, one)).collect::<Vec<_>>()
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
        let tree = fixture::tree("sys/fs/cgroup/a/b = x\nsys/fs/cgroup/unified/c/d = x");
        for text in ["", "0::/", "0::/a", "0::/c", "4:cpu:/a", "0::/no/such"] {
            assert_eq!(IngressProgram::above(&tree.root, text), None, "{text}");
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
            };
            assert_eq!(program.unit(), unit);
        }
    }
}
