//! Settings of a card and its queues.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;

use mpps_os::CallResult;
use mpps_os::ethtool::{self, Feature, QUEUES_MAX, hash_fields, rss};
use mpps_os::netlink::link;
use mpps_os::netlink::napi::{self, NapiSetting};

use super::super::value::{Form, Value};
use super::row::{ROOT, Risk, SettingRow, known, unfit};
use super::{Place, Setting, SettingHost};
use crate::facts::receive_path::facts::FILTERS;
use crate::facts::rss::{hexadecimal, key as key_of};

/// The features that a plan switches, by the kernel's names for them.
pub(crate) const FEATURES: [&str; 3] = ["rx-lro", "rx-gro-hw", "rx-gro"];

pub(super) fn channels() -> SettingRow<'static> {
    let combined = |interface: &str| {
        let channels = known(ethtool::channels(interface))?;
        Ok(channels.map(|all| all.combined).filter(|count| *count > 0))
    };
    SettingRow {
        command: "ethtool -L IF combined VALUE".into(),
        risks: &[Risk::LinkBounce, Risk::Loss, Risk::Reordering],
        excuse: |error| {
            let is_busy = error.source.kind() == ErrorKind::ResourceBusy;
            let remedy = "an XDP program or AF_XDP socket may hold its queues, and on ice RDMA (`rmmod \
                          irdma`)";
            is_busy.then(|| (format!("its driver is busy ({error})"), remedy))
        },
        ..count("combined channels", combined, ethtool::set_channels)
    }
}

pub(super) fn rx_ring() -> SettingRow<'static> {
    let size = |interface: &str| Ok(known(ethtool::rx_ring(interface))?.map(|ring| ring.size));
    SettingRow {
        command: "ethtool -G IF rx VALUE".into(),
        risks: &[Risk::LinkBounce, Risk::Loss],
        ..count("rx ring", size, ethtool::set_rx_ring)
    }
}

/// A count. The driver may make the queues anew for it.
fn count(
    noun: &'static str,
    read: fn(&str) -> CallResult<Option<u32>>,
    write: fn(&str, u32) -> CallResult<()>,
) -> SettingRow<'static> {
    let row = SettingRow::new(
        noun,
        Form::Number,
        move |_, place| Ok(read(place.name())?.map(Value::number)),
        move |_, place, value| match value.count() {
            Some(count) => write(place.name(), count),
            None => Err(unfit(place)),
        },
    );
    SettingRow {
        needs: ROOT,
        remakes_queues: true,
        ..row
    }
}

pub(super) fn feature(name: &str) -> SettingRow<'_> {
    SettingRow {
        command: format!("ethtool -K IF {name} VALUE").into(),
        risks: &[Risk::LinkBounce, Risk::Loss],
        ..switched(name, name, FEATURES.contains(&name))
    }
}

/// Whether rules steer packets.
pub(super) fn filters() -> SettingRow<'static> {
    SettingRow {
        command: "ethtool -K IF ntuple VALUE".into(),
        deed: Some(|_, _, new| format!("ntuple-filters {}", Form::Switch.text(new))),
        // A driver forgets the rules when they are switched off, and these are others'.
        obstacle: |host, place, _| {
            let rules = host.rules(place.name())?.locations.len();
            Ok((rules > 0).then(|| format!("{rules} other rules need it")))
        },
        ..switched("its feature ntuple-filters", FILTERS, true)
    }
}

fn switched<'a>(noun: &'a str, name: &'a str, is_known: bool) -> SettingRow<'a> {
    SettingRow::new(
        noun,
        is_known.then_some(Form::Switch),
        move |_, place| {
            let mut features = ethtool::features(place.name())?.into_iter();
            Ok(switch(features.find(|known| known.name == name)))
        },
        move |_, place, value| {
            ethtool::set_feature(place.name(), name, *value == Value::Switch(true))
        },
    )
}

/// A switch that is off and cannot be switched on is no setting.
fn switch(feature: Option<Feature>) -> Option<Value> {
    let feature = feature?;
    (feature.active || feature.changeable).then_some(Value::Switch(feature.active))
}

/// Which fields of this kind of traffic the card hashes, in letters.
pub(super) fn hash_fields(name: &str) -> SettingRow<'_> {
    let flow = hash_fields::FLOWS
        .into_iter()
        .find(|flow| flow.name == name);
    let form = Form::Word(|letters| hash_fields::fields(letters).is_some());
    let row = SettingRow::new(
        format!("rx-flow-hash {name}"),
        flow.map(|_| form),
        move |_, place| {
            let fields = flow.map(|flow| known(hash_fields::read(place.name(), flow)));
            let letters = |fields| Value::Word(hash_fields::letters(fields));
            Ok(fields.transpose()?.flatten().map(letters))
        },
        move |_, place, value| match flow.zip(hash_fields::fields(value.word())) {
            Some((flow, fields)) => hash_fields::set(place.name(), flow, fields),
            None => Err(unfit(place)),
        },
    );
    SettingRow {
        command: format!("ethtool -N IF rx-flow-hash {name} VALUE").into(),
        risks: &[Risk::Reordering],
        ..row
    }
}

pub(super) fn rss_table() -> SettingRow<'static> {
    let row = SettingRow::new(
        "its RSS table",
        Form::Numbers(|_| true),
        |_, place| Ok(Some(Value::Numbers(rss::read(place.name())?.indirection))),
        |_, place, value| match value.numbers() {
            [] => rss::reset_indirection(place.name()),
            table => rss::set_indirection(place.name(), table),
        },
    );
    SettingRow {
        command: "ethtool -X IF equal VALUE".into(),
        argument: Box::new(|_, table| {
            let most = table.numbers().iter().max();
            most.map_or(1, |most| most.saturating_add(1)).to_string()
        }),
        risks: &[Risk::Reordering],
        deed: Some(|_, old, new| {
            let mut old = old.numbers().iter();
            match old.find(|queue| !new.numbers().contains(queue)) {
                Some(queue) => format!("queue {queue} out of the RSS table"),
                None => "another RSS table".to_owned(),
            }
        }),
        shown: |_, table| {
            let queues: BTreeSet<&u32> = table.numbers().iter().collect();
            format!("a table of the queues {queues:?}")
        },
        set: Some(set_table),
        ..row
    }
}

/// A table that the kernel would choose is left to the kernel, which will then also adapt it to a change
/// of the number of queues (ethtool_rxfh_indir_default() is the remainder). i40e takes some tables only
/// at the second attempt (Firedancer's `configure ethtool-channels`).
fn set_table(host: &dyn SettingHost, place: &Place, value: &Value) -> CallResult<()> {
    let rings = host.rings(place.name())?.max(1);
    let mut chosen = (0..rings).cycle().zip(value.numbers());
    let write = |value: &Value| host.write(&Setting::RssTable, place, value);
    let read = || host.read(&Setting::RssTable, place);
    let is_there = || read().map(|now| now.as_ref() == Some(value));
    if chosen.all(|(queue, entry)| queue == *entry)
        && write(&Value::Numbers(Vec::new())).is_ok()
        && is_there()?
    {
        return Ok(());
    }
    write(value)?;
    if is_there()? { Ok(()) } else { write(value) }
}

/// The key of the card's hash, as ethtool writes it: `6d:5a:...`.
pub(super) fn rss_key() -> SettingRow<'static> {
    let row = SettingRow::new(
        "its RSS key",
        Form::Word(|key| key_of(key).is_ok()),
        |_, place| {
            let key = rss::read(place.name())?.key;
            Ok((!key.is_empty()).then(|| Value::Word(hexadecimal(&key))))
        },
        |_, place, value| match key_of(value.word()) {
            Ok(key) => rss::set_key(place.name(), &key),
            Err(_) => Err(unfit(place)),
        },
    );
    SettingRow {
        command: "ethtool -X IF hkey VALUE".into(),
        risks: &[Risk::Reordering],
        deed: Some(|_, _, _| "another RSS key".to_owned()),
        ..row
    }
}

/// A rule that steers a flow to a queue. An edit adds it, and takes it away.
pub(super) fn rule(destination: SocketAddr, queue: u32) -> SettingRow<'static> {
    let (ip, port) = (destination.ip(), destination.port());
    let flow = ["udp6", "udp4"][usize::from(destination.is_ipv4())];
    let form = (queue < QUEUES_MAX).then_some(Form::Rule);
    let noun = format!("UDP to {destination} steered to queue {queue}");
    SettingRow {
        command: format!(
            "ethtool -N IF flow-type {flow} dst-ip {ip} dst-port {port} action {queue}"
        )
        .into(),
        deed: Some(|noun, _, new| match new {
            Value::Rule {
                location: Some(place),
                ..
            } => format!("{noun} (rule {place})"),
            _ => noun.to_owned(),
        }),
        ..SettingRow::new(noun, form, |_, _| Ok(None), |_, place, _| Err(unfit(place)))
    }
}

/// A number of the NAPI context of a receive queue. Where that is gone there is nothing to set.
pub(super) fn napi(name: &str, queue: u32) -> SettingRow<'_> {
    let mut all = NapiSetting::ALL.into_iter();
    let setting = all.find(|one| one.name() == name);
    let context = move |place: &Place| napi::of_queue(link::index(place.name())?, queue);
    let row = SettingRow::new(
        format!("{name} of queue {queue}"),
        setting.map(|_| Form::Number),
        move |_, place| {
            let number = context(place)?.and_then(|context| context.setting(setting?));
            Ok(number.and_then(|number| Some(Value::Number(number.try_into().ok()?))))
        },
        move |_, place, value| match (context(place)?, setting, value.count()) {
            (Some(context), Some(setting), Some(number)) => napi::set(context.id, setting, number),
            _ => Err(unfit(place)),
        },
    );
    SettingRow {
        command: format!(
            "ynl --family netdev --do napi-set --json '{{\"id\": ID, \"{name}\": VALUE}}'"
        )
        .into(),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_is_fixed_off_is_no_setting() {
        let feature = |active, changeable| Feature {
            name: FILTERS.to_owned(),
            active,
            requested: active,
            changeable,
        };
        for (found, value) in [
            (None, None),
            (Some(feature(false, false)), None),
            (Some(feature(false, true)), Some(false)),
            (Some(feature(true, true)), Some(true)),
            (Some(feature(true, false)), Some(true)),
        ] {
            assert_eq!(switch(found), value.map(Value::Switch));
        }
    }
}
