//! Where the groups of cgroups(7) can be read: `ip netns exec` and containers hide them.

use super::stat::{PARENT, field};
use crate::root::Root;

/// The cgroup file systems of a mount namespace.
#[derive(Debug, Default)]
pub(super) struct CgroupMounts {
    /// How these are read from here: empty, or `proc/PID/root`.
    view: String,
    /// The place of each, and its controllers. Version 2 has one without a name.
    mounts: Vec<(String, Vec<String>)>,
}

/// A group that can be read.
pub(super) struct CgroupFolder {
    /// As `/proc/PID/cgroup` names it, without the slash before it.
    pub(super) group: String,
    /// Its directory where it is mounted, for commands: `/sys/fs/cgroup/unified/a`.
    pub(super) shown: String,
    /// The same from here, for a [`Root`].
    pub(super) path: String,
}

/// Processes above this one whose view is tried.
const ANCESTORS: usize = 16;

impl CgroupMounts {
    /// Those of this process; where it has none, those of process 1 or of the nearest process above,
    /// if this user may look through their eyes (`/proc/PID/root`, proc_pid_root(5)).
    pub(super) fn find(root: &Root) -> Self {
        let parent = |pid: &String| {
            let stat = root.read_if_possible(&format!("proc/{pid}/stat"))?;
            field(&stat, PARENT).map(|pid: u32| pid.to_string())
        };
        let above = std::iter::successors(parent(&"self".to_owned()), parent);
        let above = above.take_while(|pid| pid != "0").take(ANCESTORS);
        let others = std::iter::once("1".to_owned()).chain(above);
        let views = others.map(|pid| (format!("proc/{pid}/root"), pid));
        let all = std::iter::once((String::new(), "self".to_owned())).chain(views);
        let mut found = all.filter_map(|(view, pid)| {
            let text = root.read_if_possible(&format!("proc/{pid}/mountinfo"))?;
            let mounts: Vec<_> = text.lines().filter_map(mount).collect();
            let (place, _) = mounts.first()?;
            let is_seen = !root
                .names(&format!("{view}{place}")[usize::from(view.is_empty())..])
                .is_empty();
            is_seen.then_some(Self { view, mounts })
        });
        found.next().unwrap_or_default()
    }

    /// True if no group can be read.
    pub(super) fn is_empty(&self) -> bool {
        self.mounts.is_empty()
    }

    /// The group of this controller in this text of `/proc/PID/cgroup` and those above it, the nearest
    /// first; the controller of version 2 has no name.
    pub(super) fn groups(&self, text: &str, controller: &str) -> Vec<CgroupFolder> {
        let group = text.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let mut controllers = controllers.split(',');
            controllers
                .any(|one| one == controller)
                .then(|| group.trim_matches('/'))
        });
        let has = |names: &[String]| names.iter().any(|one| one == controller);
        let mount = self.mounts.iter().find(|(_, names)| has(names));
        let (Some(group), Some((place, _))) = (group, mount) else {
            return Vec::new();
        };
        // A group beside the root of this view (cgroup_namespaces(7)): no group of this view is above it.
        if group == ".." || group.starts_with("../") {
            return Vec::new();
        }
        let above = group.rmatch_indices('/').map(|(at, _)| &group[..at]);
        let all = std::iter::once(group).chain(above);
        let all = all.chain((!group.is_empty()).then_some(""));
        let folders = all.map(|group| {
            let shown = format!("{place}/{group}");
            let shown = shown.trim_end_matches('/').to_owned();
            CgroupFolder {
                group: group.to_owned(),
                path: format!("{}{shown}", self.view)
                    .trim_start_matches('/')
                    .to_owned(),
                shown,
            }
        });
        folders.collect()
    }

    /// The command that thaws the nearest of these groups that is frozen.
    pub(super) fn thaw(&self, root: &Root, text: &str) -> Option<String> {
        let files = [
            ("", "cgroup.freeze", "cgroup.freeze", "0"),
            (
                "freezer",
                "freezer.self_freezing",
                "freezer.state",
                "THAWED",
            ),
        ];
        files.iter().find_map(|(controller, shows, file, value)| {
            let mut groups = self.groups(text, controller).into_iter();
            let frozen = groups.find(|one| {
                let state = root.read_if_possible(&format!("{}/{shows}", one.path));
                state.is_some_and(|state| state.trim() == "1")
            })?;
            let file = format!("{}/{file}", frozen.shown);
            Some(format!(
                "echo {value} > {}",
                mpps_os::text::ShellWord::new(&file)
            ))
        })
    }
}

/// The place and the controllers in a line of `mountinfo` (proc_pid_mountinfo(5)).
fn mount(line: &str) -> Option<(String, Vec<String>)> {
    let (left, right) = line.split_once(" - ")?;
    let place = left.split(' ').nth(4)?.replace("\\040", " ");
    let (kind, options) = (right.split(' ').next()?, right.split(' ').next_back()?);
    let controllers = match kind {
        "cgroup2" => vec![String::new()],
        "cgroup" => options.split(',').map(str::to_owned).collect(),
        _ => return None,
    };
    Some((place, controllers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct\\n\
        37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\\n\
        41 31 0:38 / /mnt/two rw,relatime - cgroup2 none rw";

    #[test]
    fn groups_are_found_where_they_are_mounted() {
        for pid in ["self", "1", "70"] {
            let view = if pid == "self" {
                String::new()
            } else {
                [&format!("proc/{pid}"), "root", ""].join("/")
            };
            let tree = fixture::tree(&format!(
                "proc/{pid}/mountinfo = {MOUNTS}\n\
                 proc/self/stat = 9 (mpps) S 80 0\nproc/80/stat = 80 (ip) S 70 0\n\
                 proc/70/stat = 70 (sh) S 1 0\nproc/80/mountinfo = 31 23 0:28 / / rw - ext4 x rw\n\
                 {view}sys/fs/cgroup/cpu,cpuacct/a/b/cpu.stat = x\n\
                 {view}sys/fs/cgroup/freezer/a/freezer.self_freezing = 1\n\
                 {view}mnt/two/c/cgroup.freeze = 0"
            ));
            let mounts = CgroupMounts::find(&tree.root);
            let paths = |text: &str, controller: &str| {
                let groups = mounts.groups(text, controller).into_iter();
                groups.map(|one| (one.path, one.shown)).collect::<Vec<_>>()
            };
            let place = |shown: &str| (format!("{view}{shown}"), format!("/{shown}"));
            let cpu =
                ["/a/b", "/a", ""].map(|group| place(&format!("sys/fs/cgroup/cpu,cpuacct{group}")));
            let text = "3:freezer:/a/b\n2:cpu,cpuacct:/a/b\n0::/c\n";
            assert_eq!(paths(text, "cpu"), cpu, "{pid}");
            assert_eq!(paths(text, ""), [place("mnt/two/c"), place("mnt/two")]);
            assert_eq!(paths(text, "cpuset"), []);
            let beside = "2:cpu,cpuacct:/../target/a\n0::/..\n";
            assert_eq!(
                paths(beside, "cpu"),
                [],
                "the root of the view is no ancestor"
            );
            assert_eq!(paths(beside, ""), []);
            let thaw = "echo THAWED > /sys/fs/cgroup/freezer/a/freezer.state";
            assert_eq!(mounts.thaw(&tree.root, text).as_deref(), Some(thaw));
            assert_eq!(mounts.thaw(&tree.root, "0::/c"), None);
        }
        let none = fixture::tree("proc/self/stat = 9 (mpps) S 9 0\nproc/9/stat = 9 (mpps) S 9 0");
        assert!(CgroupMounts::find(&none.root).is_empty());
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "\\PC{0,60}", line in "([0-9a-z/:, -]{1,9} - cgroup2? ?){0,3}") {
            let mounts = CgroupMounts { view: String::new(), mounts: vec![("/x".to_owned(), vec![String::new()])] };
            for text in [&text, &line] {
                let _ = (mount(text), mounts.groups(text, "").len());
            }
        }
    }
}
