//! The kernel settings that decide what becomes of packets.

use std::collections::BTreeMap;

use mpps_os::namespace::NetNamespace;

use crate::HostResult;
use crate::root::Root;

/// The settings that a result must carry to be understood elsewhere (`sysctl(8)` names).
///
/// A kernel that lacks one, or a namespace that does not show it, has no value for it.
pub const SETTINGS: [&str; 30] = [
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.dev_weight_rx_bias",
    "net.core.dev_weight_tx_bias",
    "net.core.flow_limit_cpu_bitmap",
    "net.core.flow_limit_table_len",
    "net.core.gro_normal_batch",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.netdev_tstamp_prequeue",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_default_mask",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_early_demux",
    "net.ipv4.ipfrag_high_thresh",
    "net.ipv4.udp_early_demux",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
    "net.netfilter.nf_conntrack_max",
    "kernel.sched_rt_runtime_us",
    "kernel.timer_migration",
];

/// The settings that `mpps tune` changes. Undo writes no other, whatever a journal names.
pub(crate) const CHANGED: [&str; 5] = [
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
];

/// The value of a setting, its columns separated by single spaces; none where this kernel, or
/// this network namespace, does not have it.
///
/// Settings under `net.` are those of the calling thread's network namespace where the kernel
/// keeps them per namespace, and host-wide otherwise.
///
/// # Errors
/// [`crate::HostError::Kernel`] where the setting is there and cannot be read.
pub fn value(name: &str) -> HostResult<Option<String>> {
    value_from(&Root::machine(), name)
}

/// As [`value`], of the machine: most of `net.core` is not shown but by the first network namespace
/// (`net_core_table`, net/core/sysctl_net_core.c), and is read there, if this program may go there.
///
/// # Errors
/// As [`value`].
pub fn value_of_machine(name: &str) -> HostResult<Option<String>> {
    if let Some(own) = value(name)? {
        return Ok(Some(own));
    }
    match NetNamespace::open("/proc/1/ns/net").map(|first| first.run(|| value(name))) {
        Ok(Ok(value)) => value,
        _ => Ok(None),
    }
}

pub(crate) fn value_from(root: &Root, name: &str) -> HostResult<Option<String>> {
    let text = root.read_if_present(&path(name))?;
    Ok(text.map(|text| text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")))
}

/// All of [`SETTINGS`]. Most of `net.core` is the machine's, and only the first network namespace
/// shows it (`net_core_table`, net/core/sysctl_net_core.c): what the calling thread's does not show
/// is read there, if this program may go there.
pub(crate) fn settings() -> BTreeMap<String, Option<String>> {
    let mut settings = settings_from(&Root::machine());
    let first = NetNamespace::open("/proc/1/ns/net");
    if let Ok(Ok(others)) = first.map(|first| first.run(|| settings_from(&Root::machine()))) {
        add_missing(&mut settings, others);
    }
    settings
}

/// Adds the values of others where there is none.
pub(crate) fn add_missing(
    settings: &mut BTreeMap<String, Option<String>>,
    others: BTreeMap<String, Option<String>>,
) {
    for (name, value) in others {
        let own = settings.entry(name).or_default();
        *own = own.take().or(value);
    }
}

/// All of [`SETTINGS`]; what is refused is absent like what does not exist.
pub(crate) fn settings_from(root: &Root) -> BTreeMap<String, Option<String>> {
    let value = |name| value_from(root, name).unwrap_or(None);
    SETTINGS
        .iter()
        .map(|&name| (name.to_owned(), value(name)))
        .collect()
}

/// The file of a setting: dots separate directory, and a slash in the name stands for a dot in
/// a directory's name, as `sysctl(8)` has it for interfaces like `eth0.5`.
pub(crate) fn path(name: &str) -> String {
    let swap = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    format!("proc/sys/{}", name.chars().map(swap).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn reads_settings_and_their_absence() {
        let tree = fixture::tree(
            "proc/sys/net/core/rmem_max = 4194304\nproc/sys/net/ipv4/udp_mem = 1\\t2\\t3",
        );
        let value = |name| value_from(&tree.root, name).expect("readable");
        assert_eq!(value("net.core.rmem_max").as_deref(), Some("4194304"));
        assert_eq!(value("net.ipv4.udp_mem").as_deref(), Some("1 2 3"));
        assert_eq!(value("net.core.no_such_setting"), None);
        let settings = settings_from(&tree.root);
        assert_eq!(settings.len(), SETTINGS.len());
        assert_eq!(settings["net.core.wmem_max"], None);
    }

    #[test]
    fn interface_names_may_have_dots() {
        assert_eq!(
            path("net.ipv4.conf.eth0/5.rp_filter"),
            "proc/sys/net/ipv4/conf/eth0.5/rp_filter"
        );
    }

    #[test]
    fn the_table_has_no_twins() {
        let mut names = SETTINGS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
    }
}
