//! How long a card waits before it interrupts, for all queues or one.

use std::io::ErrorKind;

use mpps_os::ethtool::coalesce::{self, Coalescing};
use mpps_os::ethtool::{self, QUEUES_MAX};
use mpps_os::interrupts;
use mpps_os::{CallError, CallResult};

use super::super::value::{Form, Value};
use super::files::interface_file;
use super::row::{Risk, SettingRow, is_unknown, unfit};
use super::{Place, Setting, SettingHost};
use crate::facts::virtio_feature;
use crate::root::Root;

/// A virtio card can wait before it interrupts, all of it or each queue apart
/// (include/uapi/linux/virtio_net.h).
const VIRTIO_NET_F_NOTF_COAL: usize = 53;
const VIRTIO_NET_F_VQ_NOTF_COAL: usize = 52;

/// The remedy if a card does not wait.
const KERNEL_WAITS: &str = "the kernel can wait instead of the card";

pub(super) fn row(queue: Option<u32>) -> SettingRow<'static> {
    let (noun, command) = match queue {
        None => ("rx-usecs".to_owned(), "-C IF".to_owned()),
        Some(queue) => {
            let command = format!("-Q IF queue_mask {} --coalesce", mask(queue));
            (format!("queue {queue} rx-usecs"), command)
        }
    };
    let is_known = queue.is_none_or(|queue| queue < QUEUES_MAX);
    let form = Form::Numbers(|words| Coalescing::from_words(words).is_some());
    let row = SettingRow::new(
        noun,
        is_known.then_some(form),
        move |root, place| {
            let told = read(root, place.name(), queue)?;
            Ok(told.map(|told| Value::Numbers(told.words())))
        },
        move |_, place, value| match (value.coalescing(), queue) {
            (Some(wanted), None) => coalesce::set(place.name(), &wanted),
            (Some(wanted), Some(queue)) => coalesce::set_queue(place.name(), queue, &wanted),
            (None, _) => Err(unfit(place)),
        },
    );
    SettingRow {
        command: format!("ethtool {command} adaptive-rx VALUE").into(),
        argument: Box::new(|_, value| {
            let (adaptive, time_us) = times(value);
            format!(
                "{} rx-usecs {time_us}",
                ["off", "on"][usize::from(adaptive)]
            )
        }),
        risks: &[Risk::Delay],
        shown: |_, value| {
            let (adaptive, time_us) = times(value);
            format!("{time_us}{}", ["", " adaptive"][usize::from(adaptive)])
        },
        told: Some(|now| {
            let packets = now.coalescing().map_or(0, |now| now.rx_packets());
            format!("{} µs, {packets} packets", times(now).1)
        }),
        settled: |now, other| match now.coalescing().zip(other.coalescing()) {
            Some((told, other)) => Value::Numbers(told.but_chosen(&other).words()),
            None => now.clone(),
        },
        excuse: |error| {
            let is_lacking = error.source.kind() == ErrorKind::Unsupported
                || error.said.contains("unsupported parameter");
            let why = "its driver does not let a card wait before it interrupts";
            is_lacking.then(|| (why.to_owned(), KERNEL_WAITS))
        },
        rounds: Some(|wanted, became| {
            let why = "its driver took the time and does not keep it";
            let is_lost = times(became).1 == 0 && times(wanted).1 > 0;
            is_lost.then_some((why.to_owned(), KERNEL_WAITS))
        }),
        is_in_parts: true,
        // One value for all would end that of a queue.
        obstacle: match queue {
            Some(_) => |_, _, _| Ok(None),
            None => |host, place, _| {
                let all = coalescings_of(host, place)?;
                let differ = matches!(all[..], [(Setting::Coalescing { queue: Some(_) }, _), ..]);
                Ok(differ.then(|| "its queues differ now".to_owned()))
            },
        },
        ..row
    }
}

fn read(root: &Root, interface: &str, queue: Option<u32>) -> CallResult<Option<Coalescing>> {
    let (told, feature) = match queue {
        None => (coalesce::read(interface), VIRTIO_NET_F_NOTF_COAL),
        Some(queue) => (
            coalesce::read_queue(interface, queue),
            VIRTIO_NET_F_VQ_NOTF_COAL,
        ),
    };
    let is_refused = match &told {
        Ok(_) => false,
        Err(error) if error.source.kind() == ErrorKind::InvalidInput => true,
        Err(_) => return told.map(Some),
    };
    let driver = ethtool::driver(interface).ok();
    let device = driver.and_then(|driver| interrupts::device(root.path(), &driver.bus));
    let has_feature = device.and_then(|at| virtio_feature(root, &at, feature));
    // A driver refuses a queue that has gone. virtio_net still answers.
    if let Some(queue) = queue
        && (is_refused || has_feature == Some(true))
        && interface_file(root, interface, &format!("queues/rx-{queue}/rps_cpus"))?.is_none()
    {
        return Ok(None);
    }
    // virtio_net shows a time, and without the feature sets none (`virtnet_set_coalesce`,
    // `virtnet_set_per_queue_coalesce`).
    match has_feature {
        Some(false) => {
            let source = ErrorKind::Unsupported.into();
            Err(CallError::new("virtio features", interface, source))
        }
        _ => told.map(Some),
    }
}

impl Value {
    pub(crate) fn coalescing(&self) -> Option<Coalescing> {
        Coalescing::from_words(self.numbers())
    }
}

/// Whether the driver chooses the receiving side's time, and that in microseconds.
fn times(value: &Value) -> (bool, u32) {
    let told = value.coalescing();
    told.map_or((false, 0), |told| {
        (told.is_adaptive_rx(), told.rx_time_us())
    })
}

/// How the card waits, to be changed ([`coalescings`]).
pub(crate) fn coalescings_of(
    host: &dyn SettingHost,
    place: &Place,
) -> CallResult<Vec<(Setting, Coalescing)>> {
    let read = |setting: &Setting| match host.read(setting, place) {
        Ok(told) => Ok(told.and_then(|told| told.coalescing())),
        // The driver has no settings per queue, or shows none while the link is down (mlx5).
        Err(error) if *setting != Setting::Coalescing { queue: None } && is_unknown(&error) => {
            Ok(None)
        }
        Err(error) => Err(error),
    };
    let sends = |queue| {
        let file = Setting::file(format!("queues/tx-{queue}/xps_cpus"));
        matches!(host.read(&file, place), Ok(Some(_)))
    };
    coalescings(read, sends)
}

/// How the card waits, to be changed: one setting for all queues, or one per queue if they differ.
/// One value for all would end another program's setting of one queue. Undo would not know of it.
/// `sends` returns true if there is a transmit queue of this number.
pub(crate) fn coalescings<E>(
    read: impl Fn(&Setting) -> Result<Option<Coalescing>, E>,
    sends: impl Fn(u32) -> bool,
) -> Result<Vec<(Setting, Coalescing)>, E> {
    let mut queues = Vec::new();
    for queue in 0..QUEUES_MAX {
        let setting = Setting::Coalescing { queue: Some(queue) };
        match read(&setting)? {
            Some(told) => queues.push((setting, told)),
            None => break,
        }
    }
    let setting = Setting::Coalescing { queue: None };
    let all = read(&setting)?;
    let differs = |all: &Coalescing| {
        let mut queues = (0..).zip(&queues);
        queues.any(|(queue, (_, told))| !told.is_of_all(all, sends(queue)))
    };
    Ok(match all {
        Some(all) if differs(&all) => queues,
        all => all.into_iter().map(|all| (setting.clone(), all)).collect(),
    })
}

/// The bit of a queue, as `ethtool -Q` wants it.
fn mask(queue: u32) -> String {
    format!("0x{:x}{}", 1 << (queue % 4), "0".repeat(queue as usize / 4))
}
