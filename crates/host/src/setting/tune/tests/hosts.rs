//! Hosts to be planned for: as their drivers set them up, and as they were read.

use super::tunables;
use crate::setting::tune::{CpuPlace, QueueInterrupt, Tunables};
use crate::setting::{Setting, Value};
use std::fmt;

/// A host with this many nodes, cores per node and hyper-threads per core. CPUs are numbered as in
/// Linux: the second hyper-threads after all first ones.
pub(super) fn cpus(nodes: usize, cores: usize, threads: usize) -> Vec<CpuPlace> {
    let all = nodes * cores;
    (0..all * threads)
        .map(|cpu| CpuPlace {
            cpu,
            node: cpu % all / cores,
            core: cpu % all,
        })
        .collect()
}

/// The value of this text.
pub(super) fn typed(setting: &Setting, text: impl fmt::Display) -> Value {
    let mut value = Value::Word(text.to_string());
    setting.type_text(&mut value);
    value
}

pub(super) fn text(setting: Setting, value: impl fmt::Display) -> (Setting, Value) {
    let value = typed(&setting, value);
    (setting, value)
}

pub(super) fn file(name: &str) -> Setting {
    Setting::file(name)
}

pub(super) fn sysctl(name: &str) -> Setting {
    Setting::sysctl(name)
}

/// The settings of every machine, with the kernel's defaults.
pub(super) fn untouched(driver: &str, cpus: Vec<CpuPlace>, queues: u32) -> Tunables {
    let mask = match cpus.len() {
        few if few <= 32 => "0".repeat(few.div_ceil(4)),
        many => vec!["00000000"; many.div_ceil(32)].join(","),
    };
    let mut values = vec![
        text(file("gro_flush_timeout"), 0),
        text(file("napi_defer_hard_irqs"), 0),
        text(file("threaded"), 0),
        text(sysctl(tunables::FLOWS), 0),
        text(sysctl("net.core.netdev_max_backlog"), 1000),
        text(sysctl("net.core.netdev_budget"), 300),
        text(sysctl("net.core.netdev_budget_usecs"), 2000),
        text(sysctl("net.core.rmem_max"), 212_992),
    ];
    values.extend((0..queues).map(|queue| text(file(&tunables::rps_file(queue)), &mask)));
    values.extend((0..queues).map(|queue| text(file(&tunables::flows_file(queue)), 0)));
    if queues > 1 {
        values.extend((0..queues).map(|queue| text(file(&tunables::xps_file(queue)), &mask)));
    }
    let interrupts = (0..queues).map(|queue| QueueInterrupt {
        interrupt: 40 + queue,
        queue: queue as usize,
    });
    let interrupts: Vec<QueueInterrupt> = interrupts.collect();
    let everywhere = format!("0-{}", cpus.len() - 1);
    values.extend(interrupts.iter().map(|one| {
        let interrupt = one.interrupt;
        text(Setting::Affinity { interrupt }, &everywhere)
    }));
    Tunables {
        interface: "eth0".to_owned(),
        driver: driver.to_owned(),
        is_virtual: false,
        node: None,
        cpus,
        interrupts,
        channels_max: 0,
        rx_queues: queues,
        tx_queues: queues,
        rx_ring_max: 0,
        functions_max: 0,
        tracked: 0,
        irqbalance: false,
        values,
    }
}

pub(super) fn key() -> (Setting, Value) {
    text(Setting::RssKey, vec!["6d"; 40].join(":"))
}

pub(super) fn coalescing(time_us: u32, is_adaptive: bool) -> (Setting, Value) {
    coalescing_of(None, time_us, is_adaptive)
}

pub(super) fn coalescing_of(
    queue: Option<u32>,
    time_us: u32,
    is_adaptive: bool,
) -> (Setting, Value) {
    let mut words = vec![0; 22];
    (words[0], words[9]) = (time_us, is_adaptive.into());
    (Setting::Coalescing { queue }, Value::Numbers(words))
}

impl Tunables {
    pub(super) fn with(mut self, values: impl IntoIterator<Item = (Setting, Value)>) -> Self {
        self.values.extend(values);
        self
    }

    pub(super) fn with_channels(mut self, now: u32, most: u32) -> Self {
        self.channels_max = most;
        self.with([text(Setting::Channels, now)])
    }

    pub(super) fn with_ring(mut self, now: u32, most: u32) -> Self {
        self.rx_ring_max = most;
        self.with([text(Setting::RxRing, now)])
    }

    pub(super) fn with_table(self, length: usize, queues: u32) -> Self {
        let table = (0..queues).cycle().take(length).collect();
        self.with([(Setting::RssTable, Value::Numbers(table))])
    }

    pub(super) fn with_fields(self, letters: &str) -> Self {
        self.with(Setting::fields_of_udp().map(|kind| text(kind, letters)))
    }

    pub(super) fn with_features(self, features: &[(&str, &str)]) -> Self {
        let features = features.iter();
        self.with(features.map(|(name, value)| text(Setting::feature(*name), value)))
    }
}

/// The settings that drivers of Linux 6.12 choose for a card: queues, rings, fields, coalescing.
/// Server cards get two sockets of 32 cores with hyper-threads. Cloud cards get two, four and eight
/// CPUs. Facts recorded on emulated cards follow.
pub(super) fn hosts() -> Vec<(&'static str, Tunables)> {
    let read = |text| serde_json::from_str(text).expect("the facts of a plan");
    let recorded = RECORDED.map(|(name, text)| (name, read(text)));
    modelled().into_iter().chain(recorded).collect()
}

/// Two sockets of 32 cores with hyper-threads.
pub(super) fn server(driver: &str, queues: u32) -> Tunables {
    Tunables {
        node: Some(1),
        irqbalance: true,
        functions_max: 8,
        tracked: 60_000,
        ..untouched(driver, cpus(2, 32, 2), queues)
    }
}

pub(super) fn modelled() -> Vec<(&'static str, Tunables)> {
    let gro = ("rx-gro", "on");
    vec![
        (
            "mlx5_core",
            server("mlx5_core", 63)
                .with([key(), text(Setting::Filters, "off")])
                .with_channels(63, 63)
                .with_ring(1024, 8192)
                .with_table(256, 63)
                .with_fields("sdfn")
                .with_features(&[gro, ("rx-lro", "off"), ("rx-gro-hw", "off")])
                .with([coalescing(8, true)]),
        ),
        (
            "ice",
            server("ice", 64)
                .with([key(), text(Setting::Filters, "on")])
                .with_channels(64, 128)
                .with_ring(2048, 8160)
                .with_table(2048, 64)
                // default_rss_cfgs of ice_lib.c.
                .with_fields("sdfn")
                .with_features(&[gro])
                .with([coalescing(50, true)])
                .with((0..64).map(|queue| coalescing_of(Some(queue), 50, true))),
        ),
        (
            "ena",
            untouched("ena", cpus(1, 8, 1), 8)
                .with_channels(8, 8)
                .with_ring(1024, 16_384)
                .with_table(128, 8)
                // ena_com_set_default_hash_ctrl.
                .with_fields("sdfn")
                .with([key()])
                .with_features(&[gro])
                .with([coalescing(0, false)]),
        ),
        (
            "gve",
            untouched("gve", cpus(1, 2, 2), 2)
                .with_channels(2, 16)
                .with_ring(1024, 1024)
                .with_table(128, 2)
                .with_features(&[gro, ("rx-lro", "on")])
                .with([coalescing(20, false)]),
        ),
        (
            "igb",
            untouched("igb", cpus(1, 4, 1), 4)
                .with_channels(4, 8)
                .with_ring(256, 4096)
                .with_table(128, 4)
                .with_fields("sd")
                .with_features(&[gro])
                .with([coalescing(3, false)]),
        ),
        (
            "virtio_net",
            untouched("virtio_net", cpus(1, 4, 1), 1)
                .with_channels(1, 4)
                .with_ring(256, 256)
                .with_table(128, 1)
                .with_fields("sdfn")
                .with_features(&[gro, ("rx-gro-hw", "on")])
                .with([coalescing(0, false)]),
        ),
    ]
}

/// Facts that `mpps tune plan eth1 --json` read (`facts`) in virtual machines with these emulated
/// cards. The drivers had set them up.
const RECORDED: [(&str, &str); 4] = [
    ("igb, recorded", include_str!("../recorded/igb.json")),
    ("e1000e, recorded", include_str!("../recorded/e1000e.json")),
    (
        "virtio_net, recorded",
        include_str!("../recorded/virtio_net.json"),
    ),
    (
        "vmxnet3, recorded",
        include_str!("../recorded/vmxnet3.json"),
    ),
];
