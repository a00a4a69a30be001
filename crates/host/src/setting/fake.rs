//! A host that is only pretended: it can be disturbed, refuse, and end at any change.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use mpps_os::ethtool::ntuple;
use mpps_os::{CallError, CallResult};
use tempfile::TempDir;

use super::applied::Applied;
use super::change::SettingChange;
use super::journal::Journal;
use super::kind::{OfQueue, Setting, SettingHost};
use super::leftover::{Leftover, leftovers_in};
use super::outcome::{Undone, UndoneStep};
use super::owner::Life;
use super::place::{Place, PlaceKind};
use super::value::Value;

/// `EOPNOTSUPP`, `EIO`, `ENODEV`, `ENOENT` and `EACCES` of include/uapi/asm-generic/errno*.h.
const UNSUPPORTED: i32 = 95;
const BROKEN: i32 = 5;
const NO_DEVICE: i32 = 19;
const NO_ENTRY: i32 = 2;
const FORBIDDEN: i32 = 13;

/// The state of the kernel and of a card.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FakeMachine {
    /// The interface; without a name it is gone.
    pub(crate) name: &'static str,
    pub(crate) namespace: u32,
    pub(crate) namespace_cookie: Option<u64>,
    /// 0 if the driver does not show it.
    pub(crate) rings: u32,
    /// Queues that the kernel polls, if it shows them.
    pub(crate) polled: Option<usize>,
    /// Settings that are there.
    pub(crate) values: BTreeMap<Setting, Value>,
    /// A setting that refuses to be written.
    pub(crate) stuck: Option<Setting>,
    /// A setting that takes each value, and has this one.
    pub(crate) alters: Option<(Setting, Value)>,
    /// The card counts in units of this many microseconds; 0 keeps no time at all.
    pub(crate) unit_us: u32,
    /// The driver says yes to an RSS table, and takes another one.
    pub(crate) alters_tables: bool,
    /// The interface goes after this many changes in all.
    pub(crate) goes_after: Option<usize>,
    /// The settings of each queue after its driver makes all queues anew.
    pub(crate) fresh: Vec<(u32, OfQueue)>,
    /// It takes and forgets this many tables.
    pub(crate) forgets_tables: u32,
    pub(crate) rules: BTreeMap<u32, ntuple::NtupleRule>,
    /// The places for rules.
    pub(crate) size: u32,
    pub(crate) driver_chooses: bool,
    /// The driver says yes to a rule, and has none.
    pub(crate) forgets_rules: bool,
    /// The driver shows its rules in words of its own.
    pub(crate) shows_otherwise: bool,
    /// The list of packet buffers to be freed is empty and counted full.
    pub(crate) asleep: bool,
    /// Loopback is down.
    pub(crate) mute: bool,
}

/// When the program ends: at this change, before or after it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndsAt {
    pub(crate) change: usize,
    pub(crate) done: bool,
}

#[derive(Debug)]
pub(crate) struct FakeState {
    pub(crate) machine: FakeMachine,
    pub(crate) changes: usize,
    pub(crate) end: Option<EndsAt>,
    pub(crate) ended: bool,
    /// Where its journals are.
    directory: TempDir,
}

#[derive(Debug, Clone)]
pub(crate) struct Fake(Rc<RefCell<FakeState>>);

/// A card with four queues, rules off, nothing special.
pub(crate) fn plain() -> FakeMachine {
    FakeMachine {
        name: "eth9",
        namespace: 7,
        namespace_cookie: Some(70),
        rings: 4,
        polled: Some(2),
        values: BTreeMap::from([
            (Setting::Filters, Value::Switch(false)),
            (Setting::RssTable, table([0, 1, 2, 3, 0, 1, 2, 3])),
        ]),
        stuck: None,
        alters: None,
        unit_us: 1,
        alters_tables: false,
        goes_after: None,
        fresh: Vec::new(),
        forgets_tables: 0,
        rules: BTreeMap::new(),
        size: 16,
        driver_chooses: false,
        forgets_rules: false,
        shows_otherwise: false,
        asleep: false,
        mute: false,
    }
}

/// The place of all changes.
pub(crate) fn eth9() -> Place {
    let name = "eth9".to_owned();
    Place::Interface { name, index: 5 }
}

pub(crate) fn table<const N: usize>(queues: [u32; N]) -> Value {
    Value::Numbers(queues.to_vec())
}

impl FakeMachine {
    /// True if the setting is of an interface that is not there.
    fn lacks(&self, setting: &Setting, place: &Place) -> bool {
        setting.row().place == PlaceKind::Interface && self.name != place.name()
    }

    /// The same, set otherwise.
    pub(crate) fn with(mut self, setting: Setting, value: impl Into<Option<Value>>) -> Self {
        match value.into() {
            Some(value) => self.values.insert(setting, value),
            None => self.values.remove(&setting),
        };
        self
    }

    /// A driver makes all queues anew, and the kernel its own table.
    fn remake_queues(&mut self, channels: u32) {
        for (queue, one) in &self.fresh {
            let OfQueue { setting, value, .. } = one.clone();
            match *queue < channels {
                true => self.values.insert(setting, value),
                false => self.values.remove(&setting),
            };
        }
        if let Some(Value::Numbers(table)) = self.values.get_mut(&Setting::RssTable) {
            let length = table.len();
            if *table == dealt(self.rings, length) {
                *table = dealt(channels, length);
            }
        }
        self.rings = channels;
    }
}

/// The table that the kernel makes.
fn dealt(rings: u32, length: usize) -> Vec<u32> {
    (0..rings).cycle().take(length).collect()
}

impl Fake {
    pub(crate) fn new(machine: FakeMachine) -> Self {
        Self(Rc::new(RefCell::new(FakeState {
            machine,
            changes: 0,
            end: None,
            ended: false,
            directory: tempfile::tempdir().expect("a directory"),
        })))
    }

    pub(crate) fn state(&self) -> RefMut<'_, FakeState> {
        self.0.borrow_mut()
    }

    pub(crate) fn machine(&self) -> FakeMachine {
        self.state().machine.clone()
    }

    /// Sets a value as another program would.
    pub(crate) fn set(&self, setting: Setting, value: Value) {
        self.state().machine.values.insert(setting, value);
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.state().directory.path().join("mpps")
    }

    pub(crate) fn apply(&self, change: &SettingChange) -> crate::HostResult<Applied> {
        Applied::on(Box::new(self.clone()), change, &self.directory())
    }

    /// The journals that are there.
    pub(crate) fn journals(&self) -> usize {
        let (found, refused) = Journal::find(&self.directory());
        assert!(refused.is_empty(), "{refused:?}");
        found.len()
    }

    /// All is put back, and nothing is left to do.
    #[track_caller]
    pub(crate) fn is_again(&self, machine: &FakeMachine) {
        assert_eq!(self.machine(), *machine);
        assert_eq!(self.journals(), 0);
    }

    /// The leftover of a process that lives.
    pub(crate) fn found(&self) -> Leftover {
        self.all_found().pop().expect("a journal")
    }

    fn all_found(&self) -> Vec<Leftover> {
        let (left, unreadable) = leftovers_in(&self.directory());
        assert!(unreadable.is_empty(), "{unreadable:?}");
        assert!(left.iter().all(|left| left.life() == Life::Alive));
        left
    }

    /// As if this process had died: the journal names a process that is no more.
    pub(crate) fn died(&self) -> Leftover {
        self.all_died().pop().expect("a journal")
    }

    pub(crate) fn all_died(&self) -> Vec<Leftover> {
        let mut all = self.all_found();
        for left in &mut all {
            left.record.owner.start_time_ticks -= 1;
            left.journal.write(&left.record).expect("written");
            assert_eq!(left.life(), Life::Dead);
        }
        all
    }

    fn look<R>(&self, look: impl FnOnce(&FakeMachine) -> CallResult<R>) -> CallResult<R> {
        let state = self.state();
        if state.ended {
            return refuse(BROKEN);
        }
        look(&state.machine)
    }

    fn change<R>(&self, change: impl FnOnce(&mut FakeMachine) -> CallResult<R>) -> CallResult<R> {
        let mut state = self.state();
        if state.ended {
            return refuse(BROKEN);
        }
        if state.machine.goes_after == Some(state.changes) {
            state.machine.name = "";
        }
        let end = state.end.filter(|end| end.change == state.changes);
        state.changes += 1;
        if end.is_some_and(|end| !end.done) {
            state.ended = true;
            return refuse(BROKEN);
        }
        let answer = change(&mut state.machine);
        if end.is_some() {
            state.ended = true;
            return refuse(BROKEN);
        }
        answer
    }
}

fn refuse<R>(errno: i32) -> CallResult<R> {
    let source = io::Error::from_raw_os_error(errno);
    Err(CallError::new("fake", "eth9", source))
}

impl SettingHost for Fake {
    fn namespace(&self) -> CallResult<u32> {
        self.look(|machine| Ok(machine.namespace))
    }

    fn namespace_cookie(&self) -> Option<u64> {
        self.state().machine.namespace_cookie
    }

    fn index(&self, interface: &str) -> CallResult<u32> {
        self.look(|machine| match interface == machine.name {
            true => Ok(5),
            false => refuse(NO_DEVICE),
        })
    }

    fn name(&self, index: u32) -> CallResult<Option<String>> {
        self.look(|machine| {
            let found = index == 5 && !machine.name.is_empty();
            Ok(found.then(|| machine.name.to_owned()))
        })
    }

    fn rings(&self, _: &str) -> CallResult<u32> {
        self.look(|machine| match machine.rings {
            0 => refuse(UNSUPPORTED),
            rings => Ok(rings),
        })
    }

    fn polled_queues(&self, _: &Place) -> Option<usize> {
        self.state().machine.polled
    }

    fn read(&self, setting: &Setting, place: &Place) -> CallResult<Option<Value>> {
        self.look(|machine| match (setting, machine.values.get(setting)) {
            _ if machine.lacks(setting, place) => refuse(NO_DEVICE),
            (Setting::Coalescing { queue: Some(1..) }, None) => Ok(None),
            (Setting::RssTable | Setting::Coalescing { .. }, None) => refuse(UNSUPPORTED),
            (_, value) => Ok(value.cloned()),
        })
    }

    fn write(&self, setting: &Setting, place: &Place, value: &Value) -> CallResult<()> {
        if self.state().machine.stuck.as_ref() == Some(setting) {
            return refuse(FORBIDDEN);
        }
        self.change(|machine| {
            if machine.lacks(setting, place) {
                return refuse(NO_DEVICE);
            }
            if *setting == Setting::RssTable && machine.forgets_tables > 0 {
                machine.forgets_tables -= 1;
                return Ok(());
            }
            let altered = machine.alters.clone().filter(|(one, _)| one == setting);
            let mut value = altered.map_or_else(|| value.clone(), |(_, value)| value);
            match (setting, &mut value) {
                (Setting::RssTable, Value::Numbers(table)) if table.is_empty() => {
                    let length = match &machine.values[setting] {
                        Value::Numbers(old) => old.len(),
                        _ => 0,
                    };
                    *table = dealt(machine.rings, length);
                }
                (Setting::RssTable, Value::Numbers(table)) if machine.alters_tables => {
                    table.fill(0);
                }
                (Setting::Coalescing { .. }, Value::Numbers(words)) => {
                    let unit = machine.unit_us;
                    words[0] = words[0].checked_div(unit).unwrap_or(0) * unit;
                }
                (Setting::Filters, Value::Switch(false)) => machine.rules.clear(),
                // Packets of other programs come at any time.
                (Setting::SkbDefer, Value::Number(0)) => machine.asleep = true,
                _ => {}
            }
            if *setting == (Setting::Coalescing { queue: None }) {
                let queues = machine.values.iter_mut();
                let queues =
                    queues.filter(|(one, _)| matches!(one, Setting::Coalescing { queue: Some(_) }));
                queues.for_each(|(_, of_queue)| *of_queue = value.clone());
            }
            if let (true, Value::Number(told)) = (setting.row().remakes_queues, &value) {
                let channels = match setting {
                    Setting::Channels => (*told).try_into().expect("a number"),
                    _ => machine.rings,
                };
                machine.remake_queues(channels);
            }
            machine.values.insert(setting.clone(), value);
            Ok(())
        })
    }

    fn of_queues(&self, place: &Place) -> CallResult<Vec<OfQueue>> {
        let fresh = self.look(|machine| Ok(machine.fresh.clone()))?;
        let table = OfQueue {
            interrupt: None,
            setting: Setting::RssTable,
            value: Value::Numbers(Vec::new()),
        };
        let all = fresh.into_iter().map(|(_, one)| one).chain([table]);
        let known = all.filter_map(|mut one| {
            one.value = self.read(&one.setting, place).ok().flatten()?;
            Some(one)
        });
        Ok(known.collect())
    }

    fn rules(&self, _: &str) -> CallResult<ntuple::NtupleTable> {
        self.look(|machine| {
            Ok(ntuple::NtupleTable {
                size: machine.size,
                driver_chooses: machine.driver_chooses,
                locations: machine.rules.keys().copied().collect(),
            })
        })
    }

    fn rule(&self, _: &str, location: u32) -> CallResult<ntuple::Shown> {
        self.look(|machine| match machine.rules.get(&location) {
            None => refuse(NO_ENTRY),
            Some(rule) => Ok(ntuple::Shown {
                rule: Some(*rule).filter(|_| !machine.shows_otherwise),
                description: format!("{rule:?}"),
            }),
        })
    }

    fn insert(&self, _: &str, rule: &ntuple::NtupleRule, location: Option<u32>) -> CallResult<u32> {
        self.change(|machine| {
            let free = (0..).find(|place| !machine.rules.contains_key(place));
            let place = location.or(free).unwrap_or(0);
            if !machine.forgets_rules {
                machine.rules.insert(place, *rule);
            }
            Ok(place)
        })
    }

    fn remove(&self, _: &str, location: u32) -> CallResult<()> {
        self.change(|machine| match machine.rules.remove(&location) {
            Some(_) => Ok(()),
            None => refuse(NO_ENTRY),
        })
    }

    fn wake(&self) -> CallResult<()> {
        let machine = &mut self.state().machine;
        if machine.mute {
            let source = io::Error::from_raw_os_error(101);
            return Err(CallError::new("connect", "127.0.0.1", source));
        }
        // Under a limit below its count a list stays as it is.
        if machine.values.get(&Setting::SkbDefer) == Some(&Value::number(i32::MAX)) {
            machine.asleep = false;
        }
        Ok(())
    }
}

pub(crate) fn results(outcomes: Vec<UndoneStep>) -> Vec<Undone> {
    outcomes.into_iter().map(|outcome| outcome.result).collect()
}
