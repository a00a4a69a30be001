//! The name of a network namespace for people.

use mpps_os::text;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where `ip netns` keeps its names (ip-netns(8)).
pub(super) const NAMES: &str = "/run/netns";

/// The name of the network namespace with this number: that of `ip netns`, `init` for the one of the
/// machine's first process, otherwise the number, as `lsns -t net` shows it.
pub fn namespace_name(inode: u32) -> String {
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|file| file.ino() == u64::from(inode));
    if is_it(Path::new("/proc/1/ns/net")) {
        return "init".to_owned();
    }
    let mut names = fs::read_dir(NAMES).into_iter().flatten().flatten();
    let own = names.find(|entry| is_it(&entry.path()));
    let name = own.map(|entry| text::of_bytes(entry.file_name().as_bytes()));
    name.unwrap_or_else(|| inode.to_string())
}

/// Files that stand for network namespaces: of processes, and the mounts that `ip netns add` makes. A
/// namespace comes once for each of its files.
pub(crate) fn namespace_paths() -> impl Iterator<Item = (u32, String)> {
    let names = |directory: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
    };
    let processes = names("/proc")
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|pid| format!("/proc/{pid}/ns/net"));
    let named = names(NAMES).map(|name| format!("{NAMES}/{name}"));
    processes.chain(named).filter_map(|path| {
        let inode = fs::metadata(&path).ok()?.ino();
        Some((u32::try_from(inode).ok()?, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_without_a_name_has_its_number() {
        assert_eq!(namespace_name(7), "7");
    }
}
