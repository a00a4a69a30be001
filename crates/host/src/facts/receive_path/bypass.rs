//! Frameworks that go past the kernel's stack with a driver of their own.

use mpps_os::capability::CAP_SYS_ADMIN;
use mpps_os::text::ShellWord;

use super::{Copies, PathFacts, PathVerdict, StackPart};

/// PCI numbers of vendors (pci.ids).
const INTEL: u16 = 0x8086;
const MELLANOX: u16 = 0x15b3;
const SOLARFLARE: u16 = 0x1924;

/// Drivers that give a program a whole PCI function: module and name for binding.
const BINDING_MODULES: [(&str, &str); 3] = [
    ("vfio_pci", "vfio-pci"),
    ("uio_pci_generic", "uio_pci_generic"),
    ("igb_uio", "igb_uio"),
];

pub(super) fn pf_ring(facts: &PathFacts) -> PathVerdict {
    // Without a licence for its zero-copy drivers it copies.
    let verdict = PathVerdict::yes(
        "module pf_ring is loaded; a libpcap built for it uses it (--backend pcap)",
        StackPart::Nothing,
        Copies::Copy,
    );
    let host = &facts.host;
    if host.has_module("pf_ring") || host.has_file("/proc/net/pf_ring/info") {
        return verdict;
    }
    verdict.no(
        "module pf_ring is not loaded",
        "modprobe pf_ring (ntop's package pfring-dkms has it)",
    )
}

pub(super) fn netmap(facts: &PathFacts) -> PathVerdict {
    let verdict = PathVerdict::yes(
        "/dev/netmap is there; a libpcap built for it uses it (--backend pcap)",
        StackPart::Nic,
        Copies::ZeroCopy,
    );
    if facts.host.has_file("/dev/netmap") {
        return verdict;
    }
    let why = if facts.host.has_module("netmap") {
        "module netmap is there, and no /dev/netmap"
    } else {
        "no module netmap and no /dev/netmap"
    };
    verdict.no(
        why,
        "modprobe netmap (built from its sources for this kernel)",
    )
}

pub(super) fn onload(facts: &PathFacts) -> PathVerdict {
    let (host, name) = (&facts.host, &facts.nic.name);
    let verdict = PathVerdict::yes("", StackPart::Flow, Copies::ZeroCopy);
    let vendor = facts.nic.function.as_ref().map(|function| function.vendor);
    let loaded = host.has_module("onload") || host.has_file("/dev/onload");
    if vendor == Some(SOLARFLARE) {
        return if loaded {
            let why = "a Solarflare card (vendor 1924), and module onload is loaded";
            verdict.because(why)
        } else {
            verdict.no(
                "a Solarflare card (vendor 1924), but module onload is not loaded",
                "onload_tool reload (after installing OpenOnload)",
            )
        };
    }
    if host.has_file("/sys/module/sfc_resource/afxdp/register") {
        // OpenOnload 8 and later run on AF_XDP of other cards, once they are registered.
        return verdict.no(
            format!("{}; this OpenOnload takes others by AF_XDP", card(facts)),
            format!(
                "echo {} > /sys/module/sfc_resource/afxdp/register",
                ShellWord::new(name)
            ),
        );
    }
    match vendor {
        Some(_) => verdict.never(format!("{}, not Solarflare (vendor 1924)", card(facts))),
        None => verdict.never(card(facts)),
    }
}

pub(super) fn snabb(facts: &PathFacts) -> PathVerdict {
    let verdict = PathVerdict::yes("", StackPart::Nic, Copies::ZeroCopy);
    let Some(function) = &facts.nic.function else {
        return verdict.never(card(facts));
    };
    if ![INTEL, MELLANOX].contains(&function.vendor) {
        return verdict.never(format!(
            "{}: Snabb drives Intel and Mellanox cards",
            card(facts)
        ));
    }
    let programs = ["/usr/bin/snabb", "/usr/local/bin/snabb"];
    let Some(program) = programs.iter().find(|path| facts.host.has_file(path)) else {
        return verdict.no(
            format!(
                "{}; neither {} nor {} is there",
                card(facts),
                programs[0],
                programs[1]
            ),
            "make install, in Snabb's sources",
        );
    };
    if facts.host.huge_pages.total == 0 {
        return no_huge_pages(&verdict);
    }
    verdict.because(format!("{program}, {}{}", card(facts), warning(facts)))
}

pub(super) fn dpdk(facts: &PathFacts) -> PathVerdict {
    let (host, nic) = (&facts.host, &facts.nic);
    let mut verdict = PathVerdict::yes("", StackPart::Nic, Copies::ZeroCopy);
    let Some(function) = &nic.function else {
        let arguments = format!("--no-pci --vdev=net_af_packet0,iface={}", nic.name);
        let why = format!(
            "{}: only by --dpdk-args {}, on AF_PACKET",
            card(facts),
            ShellWord::new(&arguments)
        );
        return PathVerdict::yes(why, StackPart::Nothing, Copies::Copy);
    };
    if !host.capable(CAP_SYS_ADMIN) {
        return verdict.no("this process has no CAP_SYS_ADMIN", "run as root");
    }
    if host.huge_pages.total == 0 {
        return no_huge_pages(&verdict);
    }
    let pages = format!("{} huge pages", host.huge_pages.total);
    if function.vendor == MELLANOX && host.has_module("mlx5_core") {
        // Its poll mode driver works through the kernel's driver, which keeps the card.
        verdict.takes = StackPart::Flow;
        let why = format!("{}, driver mlx5_core stays; {pages}", card(facts));
        return verdict.because(why);
    }
    let binding = BINDING_MODULES
        .iter()
        .find(|(module, _)| host.has_module(module));
    let Some((_, binding)) = binding else {
        let why = format!(
            "{}; {pages}; none of vfio_pci, uio_pci_generic, igb_uio is loaded",
            card(facts)
        );
        return verdict.no(why, "modprobe vfio-pci");
    };
    if *binding == "vfio-pci" && !host.iommu {
        return verdict.no(
            "vfio_pci is loaded, and there are no IOMMU groups",
            "boot with intel_iommu=on or amd_iommu=on, or \
             echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
        );
    }
    let why = format!(
        "{pages}, {binding} is loaded, but driver {} has {}{}",
        nic.driver,
        function.address,
        warning(facts)
    );
    verdict.no(
        why,
        format!("dpdk-devbind.py --bind={binding} {}", function.address),
    )
}

fn no_huge_pages(verdict: &PathVerdict) -> PathVerdict {
    verdict
        .clone()
        .no("HugePages_Total is 0", "sysctl vm.nr_hugepages=512")
}

/// The card's PCI numbers, in words.
fn card(facts: &PathFacts) -> String {
    match &facts.nic.function {
        Some(function) => format!(
            "{} is PCI {:04x}:{:04x}",
            facts.nic.name, function.vendor, function.device
        ),
        None if facts.nic.driver.is_empty() => format!("{} is no PCI card", facts.nic.name),
        None => format!(
            "{} is no PCI card but a {}",
            facts.nic.name, facts.nic.driver
        ),
    }
}

/// To take the card that carries the host's traffic is to lose the host.
fn warning(facts: &PathFacts) -> String {
    if facts.nic.default_route {
        format!(
            "; {} has the default route, which would be lost",
            facts.nic.name
        )
    } else {
        String::new()
    }
}
