//! The parts of `RingConfig::arguments`: the device that receives, and the environment's arguments.

use crate::{Error, RingConfig};

/// Mebibytes that the environment may use where it has no huge pages. They are taken as they are
/// used, so that the figure costs nothing.
const MEMORY_MB: &str = "1024";

/// A PCI address that no DPDK device has. Allowing only this one keeps DPDK from taking every
/// device that it could; the wanted device is added by name.
const NO_PCI_DEVICE: &str = "0000:00:00.0";

/// Arguments for DPDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arguments {
    /// Arguments of `rte_eal_init`, defaults first.
    pub(super) environment: Vec<String>,
    /// The device, as `--vdev` or `--allow` names it.
    pub(super) device: Option<String>,
}

impl Arguments {
    /// Those of a user, with what mpps adds where they say nothing: no huge pages and no hardware
    /// unless asked for, one thread that may run on `cpus`, no files, no prints.
    ///
    /// # Errors
    /// More than one device; a device and `RingConfig::interface`.
    pub(super) fn new(ring: &RingConfig, cpus: &[usize]) -> Result<Self, Error> {
        let words = ring
            .arguments
            .iter()
            .flat_map(|text| text.split_whitespace());
        let (mut user, mut devices) = (Vec::new(), Vec::new());
        let mut has_hardware = false;
        let mut words = words.map(str::to_owned);
        while let Some(word) = words.next() {
            match device(&word, &mut words) {
                Some((is_hardware, name)) => {
                    has_hardware |= is_hardware;
                    devices.push(name);
                }
                None => user.push(word),
            }
        }
        let invalid = |why: &str| Error::invalid("ring.arguments", ring.arguments.join(" "), why);
        if devices.len() > 1 {
            return Err(invalid(
                "one device receives (--vdev or --allow), not several",
            ));
        }
        if !devices.is_empty() && ring.interface.is_some() {
            return Err(invalid(
                "names a device, so `ring.interface` would say nothing",
            ));
        }
        let mut environment = defaults(&user, ring.hugepages, has_hardware, cpus);
        environment.append(&mut user);
        Ok(Self {
            environment,
            device: devices.pop(),
        })
    }
}

/// The device that an argument names, and whether it is hardware.
fn device(word: &str, rest: &mut impl Iterator<Item = String>) -> Option<(bool, String)> {
    let (flag, value) = match word.split_once('=') {
        Some((flag, value)) => (flag, Some(value.to_owned())),
        None => (word, None),
    };
    let is_hardware = match flag {
        "--vdev" => false,
        "--allow" | "-a" => true,
        _ => return None,
    };
    let value = value.or_else(|| rest.next());
    Some((is_hardware, value.unwrap_or_default()))
}

fn defaults(user: &[String], hugepages: bool, has_hardware: bool, cpus: &[usize]) -> Vec<String> {
    let says = |flags: &[&str]| {
        let flag = |word: &String| flags.contains(&word.split('=').next().unwrap_or_default());
        user.iter().any(flag)
    };
    let mut all = vec!["--no-telemetry", "--file-prefix=mpps", "--log-level=error"];
    if hugepages || says(&["--huge-dir", "--socket-mem"]) {
        all.push("--in-memory");
    } else {
        // DPDK refuses `--in-memory` beside `--no-huge`; this is the part of it that is left.
        all.push("--no-shconf");
        if !says(&["--no-huge"]) {
            all.push("--no-huge");
        }
        if !says(&["-m"]) {
            all.extend(["-m", MEMORY_MB]);
        }
    }
    if has_hardware {
        all.extend(["-a", NO_PCI_DEVICE]);
    } else if !says(&["--no-pci"]) {
        all.push("--no-pci");
    }
    let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
    let lcores = format!("--lcores=0@({})", cpus.join(","));
    if !says(&["-l", "-c", "-s", "-S", "--lcores"]) {
        all.push(&lcores);
    }
    all.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Arguments {
        let ring = RingConfig {
            arguments: vec![text.to_owned()],
            ..RingConfig::default()
        };
        Arguments::new(&ring, &[0, 1]).expect("good arguments")
    }

    #[test]
    fn nothing_said_is_no_hardware_and_no_huge_pages() {
        let arguments = parsed("");
        assert_eq!(arguments.device, None);
        for wanted in ["--no-huge", "--no-pci", "--no-shconf", "--lcores=0@(0,1)"] {
            assert!(
                arguments.environment.iter().any(|one| one == wanted),
                "{wanted}"
            );
        }
    }

    #[test]
    fn a_device_is_told_from_the_environment() {
        let tap = "net_af_packet0,iface=mpps-rx,qpairs=1";
        for text in [
            format!("--vdev={tap} --log-level=debug"),
            format!("--vdev {tap}  --log-level=debug"),
        ] {
            let arguments = parsed(&text);
            assert_eq!(arguments.device.as_deref(), Some(tap));
            // The user's comes last and holds.
            let last = arguments.environment.last();
            assert_eq!(last.map(String::as_str), Some("--log-level=debug"));
        }
    }

    #[test]
    fn hardware_is_one_device_and_not_all_there_are() {
        let arguments = parsed("-a 0000:01:00.0");
        assert_eq!(arguments.device.as_deref(), Some("0000:01:00.0"));
        let text = arguments.environment.join(" ");
        assert!(
            text.contains("-a 0000:00:00.0") && !text.contains("--no-pci"),
            "{text}"
        );
    }

    #[test]
    fn what_the_user_says_is_not_said_again() {
        let text = parsed("-m 64 -l 0 --no-pci").environment.join(" ");
        assert!(
            !text.contains("1024") && !text.contains("--lcores"),
            "{text}"
        );
        assert_eq!(text.matches("--no-pci").count(), 1, "{text}");
        let text = parsed("--socket-mem=128").environment.join(" ");
        assert!(!text.contains("--no-huge"), "{text}");
    }

    #[test]
    fn contradictions_are_refused() {
        let mut ring = RingConfig {
            arguments: vec!["--vdev a --vdev b".to_owned()],
            ..RingConfig::default()
        };
        assert!(Arguments::new(&ring, &[0]).is_err());
        ring.arguments = vec!["--vdev a".to_owned()];
        ring.interface = Some("eth0".to_owned());
        assert!(Arguments::new(&ring, &[0]).is_err());
    }
}
