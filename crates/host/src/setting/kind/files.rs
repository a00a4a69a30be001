//! Settings that are files.

use std::borrow::Cow;
use std::io;

use mpps_os::CallResult;
use mpps_os::ethtool::QUEUES_MAX;
use mpps_os::netlink::link;
use mpps_os::sysfs::Sysfs;

use super::super::place::{Place, PlaceKind, SKB_DEFER_MAX};
use super::super::value::{Form, Value};
use super::row::{ROOT, Risk, SettingRow};
use super::{Setting, SettingHost};
use crate::HostError;
use crate::facts::sysctl;
use crate::root::Root;

/// The value of [`skb_defer`] while sleeping lists are woken: no list is full then. It is the largest
/// that `proc_dointvec_minmax` takes.
const UNLIMITED: Value = Value::Number(i32::MAX as i64);

const MOVES_FLOWS: &[Risk] = &[Risk::Reordering];

/// The files that mpps changes: the kind of queue that has the file, its name, its type and its risks
/// (Documentation/ABI/testing/sysfs-class-net, sysfs-class-net-queues).
pub(crate) const FILES: [(Option<&str>, &str, Form, &[Risk]); 8] = [
    (None, "gro_flush_timeout", Form::Number, &[Risk::Delay]),
    (None, "napi_defer_hard_irqs", Form::Number, &[Risk::Delay]),
    (None, "threaded", Form::Number, &[]),
    (Some("rx"), "rps_cpus", Form::Mask, MOVES_FLOWS),
    (Some("rx"), "rps_flow_cnt", Form::Number, MOVES_FLOWS),
    (Some("tx"), "xps_cpus", Form::Mask, &[]),
    (Some("tx"), "xps_rxqs", Form::Mask, &[]),
    (Some("tx"), "tx_maxrate", Form::Number, &[]),
];

/// A file of an interface in `/sys/class/net`.
pub(super) fn of_interface(name: &str) -> SettingRow<'_> {
    let (form, risks) = file_of_interface(name).unzip();
    let text_form = form.unwrap_or(Form::Number);
    let row = SettingRow::new(
        name,
        form,
        move |root, place| text_form.read(interface_file(root, place.name(), name)?, name),
        move |_, place, value| {
            Sysfs::mount()?.write(&path(place.name(), name), &text_form.text(value))
        },
    );
    SettingRow {
        command: format!("echo VALUE > /sys/class/net/IF/{name}").into(),
        needs: ROOT,
        risks: risks.unwrap_or_default(),
        ..row
    }
}

/// The type of a file, and its risks, if mpps changes that file.
fn file_of_interface(name: &str) -> Option<(Form, &'static [Risk])> {
    let named = match name.strip_prefix("queues/") {
        None => (None, name),
        Some(name) => {
            let (directory, file) = name.split_once('/')?;
            let (direction, queue) = directory.split_once('-')?;
            let number: u32 = queue.parse().ok()?;
            let is_plain = number < QUEUES_MAX && number.to_string() == queue;
            is_plain.then_some((Some(direction), file))?
        }
    };
    let mut files = FILES.into_iter();
    let (.., form, risks) = files.find(|(direction, file, ..)| (*direction, *file) == named)?;
    Some((form, risks))
}

/// A setting of `sysctl(8)`.
pub(super) fn sysctl(name: &str, is_known: bool) -> SettingRow<'_> {
    SettingRow {
        command: format!("sysctl -w {name}=VALUE").into(),
        risks: &[Risk::WholeMachine],
        ..of_machine(name, is_known.then_some(Form::Number), sysctl::path(name))
    }
}

/// The CPUs of an interrupt.
pub(super) fn affinity(interrupt: u32) -> SettingRow<'static> {
    let path = format!("proc/irq/{interrupt}/smp_affinity_list");
    SettingRow {
        command: format!("echo VALUE > /{path}").into(),
        risks: MOVES_FLOWS,
        ..of_machine(
            format!("CPUs of interrupt {interrupt}"),
            Some(Form::List),
            path,
        )
    }
}

/// A file below the root.
fn of_machine<'a>(
    noun: impl Into<Cow<'a, str>>,
    form: Option<Form>,
    path: String,
) -> SettingRow<'a> {
    let text_form = form.unwrap_or(Form::Number);
    let of_write = path.clone();
    let row = SettingRow::new(
        noun,
        form,
        move |root, _| text_form.read(root.read_if_present(&path)?, &path),
        move |root, _, value| root.write(&of_write, &text_form.text(value)),
    );
    SettingRow {
        needs: ROOT,
        place: PlaceKind::Machine,
        ..row
    }
}

/// The length of the lists of packet buffers that a CPU is to free for another one.
pub(super) fn skb_defer() -> SettingRow<'static> {
    SettingRow {
        rehearse: |host, place, old| {
            host.write(&Setting::SkbDefer, place, old)?;
            host.wake().map_err(|refusal| {
                let why = format!("its lists could not be woken afterwards ({refusal})");
                let remedy =
                    "this needs every CPU, and so no cpuset, and the loopback interface up";
                HostError::impossible(place.name(), why, remedy)
            })
        },
        meanwhile: Some(UNLIMITED),
        restore: Some(wake_lists),
        ..sysctl(SKB_DEFER_MAX, true)
    }
}

/// Writing the old value is not enough. On Linux 6.18 a list also counts packets that did not get on it.
/// Its count begins anew only when something is taken off. After the 0 every list is empty and counted
/// full. It stays so under any limit that is not above its count. So the limit is lifted, each list gets a
/// packet and loses it, and the limit is restored. A program that wrote the old value before us may not
/// have known that.
fn wake_lists(host: &dyn SettingHost, place: &Place, old: &Value) -> CallResult<()> {
    host.write(&Setting::SkbDefer, place, &UNLIMITED)?;
    let woken = host.wake();
    // The value comes back also if the lists do not.
    host.write(&Setting::SkbDefer, place, old)?;
    woken
}

/// The text of a file of the interface; none if it is of a queue that no longer exists.
pub(crate) fn interface_file(
    root: &Root,
    interface: &str,
    name: &str,
) -> CallResult<Option<String>> {
    let mounted = |name: &str| root.read(&format!("sys/{}", path(interface, name)));
    let sysfs = match Sysfs::mount() {
        Ok(sysfs) => Some(sysfs),
        // A user who may not mount reads the mounted files, if they are of this namespace.
        Err(refusal) => {
            let index = mounted("ifindex").ok();
            if index != Some(link::index(interface)?.to_string()) {
                return Err(refusal);
            }
            None
        }
    };
    let read = |name: &str| match &sysfs {
        Some(sysfs) => sysfs.read(&path(interface, name)),
        None => mounted(name),
    };
    match read(name) {
        Err(error)
            if name.starts_with("queues/")
                && error.source.kind() == io::ErrorKind::NotFound
                && read("ifindex").is_ok() =>
        {
            Ok(None)
        }
        told => told.map(Some),
    }
}

fn path(interface: &str, name: &str) -> String {
    format!("class/net/{interface}/{name}")
}
