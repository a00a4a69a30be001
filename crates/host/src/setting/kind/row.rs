//! All about a setting: its row in the table.

use std::borrow::Cow;
use std::fmt;
use std::io;

use mpps_os::{CallError, CallResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::place::PlaceKind;
use super::super::value::{Form, Value};
use super::{Place, SettingHost};
use crate::root::Root;
use crate::{HostError, HostResult};

/// The rights of [`SettingRow::needs`] (capabilities(7)). The files of queues and interrupts belong to root.
pub(super) const NET_ADMIN: &str = "CAP_NET_ADMIN";
pub(super) const ROOT: &str = "root";

/// A risk of a change.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Most drivers take the link down for it, some for seconds.
    LinkBounce,
    /// Packets that wait in the card's rings are lost.
    Loss,
    /// Flows move to other queues, so that packets may overtake each other.
    Reordering,
    /// Packets reach their program later from then on.
    Delay,
    /// It concerns all interfaces of the network namespace.
    WholeNamespace,
    /// It concerns the whole machine and not only the interface.
    WholeMachine,
}

type ReadSetting<'a> = Box<dyn Fn(&Root, &Place) -> CallResult<Option<Value>> + 'a>;
type WriteSetting<'a> = Box<dyn Fn(&Root, &Place, &Value) -> CallResult<()> + 'a>;
type CommandArgument<'a> = Box<dyn Fn(Form, &Value) -> String + 'a>;

/// A failure in plain words, and what helps.
type Excuse = (String, &'static str);

/// Something that is tried at a place with a value.
pub(crate) type Attempt<R> = fn(&dyn SettingHost, &Place, &Value) -> R;

/// All about a setting. [`SettingRow::new`] has the columns of a setting that is in no way special.
pub(crate) struct SettingRow<'a> {
    /// Its name in a sentence.
    pub(crate) noun: Cow<'a, str>,
    /// The type of its value. None if no plan has this name: it is not read, set or undone.
    pub(crate) form: Option<Form>,
    /// The places that have it.
    pub(crate) place: PlaceKind,
    /// Its value at a place; none if there is no such setting.
    pub(crate) read: ReadSetting<'a>,
    /// Sets a value of its form.
    pub(crate) write: WriteSetting<'a>,
    /// The plain command for a shell, with `IF` for the interface or process and `VALUE`.
    pub(crate) command: Cow<'a, str>,
    /// `VALUE` in the command.
    pub(crate) argument: CommandArgument<'a>,
    /// The right to set it and put it back.
    pub(crate) needs: &'static str,
    pub(crate) risks: &'static [Risk],
    /// True if a driver may make all queues anew for it, and forget what was set for each.
    pub(crate) remakes_queues: bool,

    /// A value in an edit.
    pub(crate) shown: fn(Form, &Value) -> String,
    /// An edit, if its words are the same when it is undone.
    pub(crate) deed: Option<fn(&str, &Value, &Value) -> String>,
    /// The value that another program set, if it is more than shown in an edit.
    pub(crate) told: Option<fn(&Value) -> String>,
    /// A refusal in plain words.
    pub(crate) excuse: fn(&CallError) -> Option<Excuse>,

    /// Tries before an edit whether the value could be put back.
    pub(crate) rehearse: Attempt<HostResult<()>>,
    /// Sets it, if a write is not enough.
    pub(crate) set: Option<Attempt<CallResult<()>>>,
    /// Puts the old value back, if that is not as it is set.
    pub(crate) restore: Option<Attempt<CallResult<()>>>,
    /// True if the kernel does not show it: it is put back unseen.
    pub(crate) is_unread: bool,
    /// The loss that undoing cannot repair, if this was the value before.
    pub(crate) lost: fn(&Value) -> Option<&'static str>,
    /// The value while it is put back.
    pub(crate) meanwhile: Option<Value>,
    /// The first value without what the driver chooses: that is as in the second.
    pub(crate) settled: fn(&Value, &Value) -> Value,
    /// For a driver that rounds values: why it made nothing of the first. Otherwise any other value is a
    /// fault.
    pub(crate) rounds: Option<fn(&Value, &Value) -> Option<Excuse>>,
    /// True if a write is several calls, so that a process may die in between.
    pub(crate) is_in_parts: bool,
    /// Why an old value is not put back, though no other program has changed the setting.
    pub(crate) obstacle: Attempt<CallResult<Option<String>>>,
    /// Why it cannot be undone where it is not there. If not given, nothing is to be undone.
    pub(crate) absent: Option<&'static str>,
}

impl<'a> SettingRow<'a> {
    pub(super) fn new(
        noun: impl Into<Cow<'a, str>>,
        form: impl Into<Option<Form>>,
        read: impl Fn(&Root, &Place) -> CallResult<Option<Value>> + 'a,
        write: impl Fn(&Root, &Place, &Value) -> CallResult<()> + 'a,
    ) -> Self {
        Self {
            noun: noun.into(),
            form: form.into(),
            place: PlaceKind::Interface,
            read: Box::new(read),
            write: Box::new(write),
            command: "".into(),
            argument: Box::new(Form::text),
            needs: NET_ADMIN,
            risks: &[],
            remakes_queues: false,
            shown: Form::text,
            deed: None,
            told: None,
            excuse: |_| None,
            rehearse: |_, _, _| Ok(()),
            set: None,
            restore: None,
            is_unread: false,
            lost: |_| None,
            meanwhile: None,
            settled: |now, _| now.clone(),
            rounds: None,
            is_in_parts: false,
            obstacle: |_, _, _| Ok(None),
            absent: None,
        }
    }

    /// The words for a value.
    fn shown(&self, value: &Value) -> String {
        (self.shown)(self.form.unwrap_or(Form::Number), value)
    }

    /// An edit, in a few words.
    pub(crate) fn show(&self, old: &Value, new: &Value, is_undone: bool) -> String {
        let (noun, [from, to]) = (&*self.noun, [old, new].map(|value| self.shown(value)));
        match (self.deed, is_undone) {
            (Some(deed), _) => deed(noun, old, new),
            (None, false) => format!("{noun} {from} -> {to}"),
            (None, true) => format!("{noun} {to} -> {from}"),
        }
    }

    /// The value that another program set, in words.
    pub(crate) fn told(&self, now: &Value) -> String {
        let told = self.told.map(|told| told(now));
        told.unwrap_or_else(|| format!("it is {}", self.shown(now)))
    }

    pub(crate) fn command(&self, interface: &str, value: &Value) -> String {
        let argument = (self.argument)(self.form.unwrap_or(Form::Number), value);
        self.command
            .replace("VALUE", &argument)
            .replace("IF", interface)
    }

    /// Returns a plain sentence if the driver lacks the setting, and the refusal itself otherwise.
    pub(crate) fn refused(&self, error: CallError, interface: &str) -> HostError {
        match (self.excuse)(&error) {
            Some((why, remedy)) => HostError::impossible(interface, why, remedy),
            None => error.into(),
        }
    }

    /// Why what a driver made of a value is none of what was wanted.
    pub(crate) fn fault(&self, wanted: &Value, became: &Value) -> Option<Excuse> {
        if let Some(fault) = self.rounds {
            return fault(wanted, became);
        }
        let (noun, now) = (&self.noun, self.told(became));
        let why = format!("{noun} was set and has another value: {now}");
        (became != wanted).then_some((why, "leave it as it is"))
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkBounce => "the link may go down for a while",
            Self::Loss => "packets that wait in the card's rings are lost",
            Self::Delay => "from then on packets may reach their program later",
            Self::Reordering => "packets of a flow may overtake each other while it moves",
            Self::WholeNamespace => "it concerns the whole network namespace",
            Self::WholeMachine => "it concerns the whole machine",
        })
    }
}

/// A driver that has no such notion has no such setting.
pub(crate) fn known<T>(answer: CallResult<T>) -> CallResult<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_unknown(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if a driver has no such setting, or takes no such value.
pub(crate) fn is_unknown(error: &CallError) -> bool {
    let kind = error.source.kind();
    matches!(
        kind,
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
    )
}

/// No edit that was planned here has such a value.
pub(crate) fn unfit(place: &Place) -> CallError {
    let source = io::Error::from(io::ErrorKind::InvalidInput);
    CallError::new("set", place.name(), source)
}
