//! The kernel's own reuse of packet buffers across CPUs, switched off and on again.
//!
//! A CPU that is done with an `sk_buff` of another CPU does not free it, but puts it on a list, from
//! which the other CPU frees it into its own cache (`skb_attempt_defer_free` in net/core/skbuff.c).
//! `net.core.skb_defer_max` is the length at which such a list is full (Linux 5.19); 0 leaves all of
//! them empty, and every CPU frees by itself. It is one setting for the whole machine, and shown in
//! the initial network namespace only (`net_core_table` in net/core/sysctl_net_core.c).
//!
//! It stays when a process dies, and is journalled for that ([`crate::change`]): [`SkbDefer`] puts
//! it back when it goes.

mod lists;
#[cfg(test)]
mod tests;

pub use lists::{DeferLists, KernelLists};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Made, Outcome, Undone};
use crate::journal::{self, Journal, Owner, Record};
use crate::{Error, Result};

/// The setting's name (`sysctl(8)`).
pub const SKB_DEFER_MAX: &str = "net.core.skb_defer_max";

/// The value while sleeping lists are woken: no list is full then. It is the largest that
/// `proc_dointvec_minmax` takes.
const UNLIMITED: u32 = i32::MAX as u32;

/// Lists that are switched off. Dropping it switches them on again.
#[derive(Debug)]
pub struct SkbDefer(Made<SkbDeferPlan>);

/// What switching off will do, found by reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkbDeferPlan {
    /// The initial network namespace, by its inode number (`ns.inum`).
    pub namespace: u32,
    /// The setting as it was found, in packets.
    pub was: u32,
}

impl Change for SkbDeferPlan {
    const WHAT: &'static str = "a change";
    const FILES: &'static str = "setting";
    type Host = dyn DeferLists;

    fn kernel() -> Box<dyn DeferLists> {
        Box::new(KernelLists::default())
    }

    fn namespace_of(lists: &dyn DeferLists) -> Result<u32, mpps_os::Error> {
        lists.namespace()
    }

    fn namespace(&self) -> u32 {
        self.namespace
    }

    fn object(&self) -> &str {
        SKB_DEFER_MAX
    }

    /// One for the machine: no namespace has a setting of its own.
    fn place(&self) -> String {
        SKB_DEFER_MAX.to_owned()
    }

    fn heading(&self) -> String {
        "this machine".to_owned()
    }

    fn steps(&self) -> Vec<String> {
        vec![format!("{SKB_DEFER_MAX} {} -> 0", self.was)]
    }

    fn present(&self, lists: &dyn DeferLists) -> Result<Option<String>, mpps_os::Error> {
        Ok(lists.limit()?.map(|_| SKB_DEFER_MAX.to_owned()))
    }

    /// What would refuse to put it back refuses here, where nothing is changed yet.
    fn prepare(&mut self, _step: usize, lists: &dyn DeferLists) -> Result<()> {
        if lists.limit()?.as_deref() != Some(&*self.was.to_string()) {
            let why = "somebody changed it just now";
            return Err(Error::impossible(SKB_DEFER_MAX, why, "try again"));
        }
        lists.set_limit(self.was)?;
        lists.wake().map_err(|refusal| {
            let why = format!("its lists could not be woken afterwards ({refusal})");
            let remedy = "this needs every CPU, and so no cpuset, and the loopback interface up";
            Error::impossible(SKB_DEFER_MAX, why, remedy)
        })
    }

    fn take(&mut self, _step: usize, lists: &dyn DeferLists) -> Result<()> {
        Ok(lists.set_limit(0)?)
    }

    /// To write the old value is not enough. On Linux 6.18 a list counts also
    /// what did not get on it, and its count begins anew only when something is taken off: after
    /// the 0 every list is empty, counted full, and stays so under any limit that is not above its
    /// count. So the limit is lifted, each list gets a packet and loses it, and then the limit is
    /// what it was. Who wrote the old value before us may not have known that.
    fn undo(
        &self,
        _step: usize,
        _object: &str,
        lists: &dyn DeferLists,
    ) -> Result<Undone, mpps_os::Error> {
        let now = lists.limit()?.unwrap_or_default();
        if ![0, UNLIMITED, self.was]
            .map(|ours| ours.to_string())
            .contains(&now)
        {
            return Ok(Undone::Changed(format!("it is {now}")));
        }
        lists.set_limit(UNLIMITED)?;
        let woken = lists.wake();
        // The value comes back also if the lists do not.
        lists.set_limit(self.was)?;
        woken.map(|()| Undone::Restored)
    }
}

impl SkbDefer {
    /// Finds out what the setting is. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Impossible`] where there is no such setting, where it is 0 already, or where
    /// another process changed it or died and left it changed; [`Error::Kernel`].
    pub fn plan() -> Result<SkbDeferPlan> {
        SkbDeferPlan::make(&KernelLists::default(), &journal::directories())
    }

    /// Switches the lists off, in the initial network namespace, where it must also end.
    ///
    /// # Errors
    /// [`Error::Impossible`] where another process has it changed, it has changed since it was
    /// planned, or the lists could not be woken afterwards; [`Error::Kernel`] for a refusal, also
    /// of the journal's file; [`Error::PutBack`].
    pub fn apply(plan: &SkbDeferPlan) -> Result<Self> {
        Made::apply(plan, SkbDeferPlan::kernel(), &journal::directories()).map(Self)
    }

    /// Switches the lists on again, and says what came of it. After a failure the journal is kept
    /// for `mpps undo`.
    pub fn undo(self) -> Vec<Outcome> {
        self.0.undo()
    }
}

impl SkbDeferPlan {
    fn make(lists: &dyn DeferLists, directories: &[PathBuf]) -> Result<Self> {
        let impossible = |why: String, remedy: &str| Error::impossible(SKB_DEFER_MAX, why, remedy);
        let Some(found) = lists.limit()? else {
            return Err(impossible(
                "there is none here".to_owned(),
                "this needs Linux 5.19 and the initial network namespace",
            ));
        };
        let was = found
            .parse()
            .map_err(|_| Error::malformed(SKB_DEFER_MAX, format!("`{found}` is no number")))?;
        let plan = Self {
            namespace: lists.namespace()?,
            was,
        };
        // Before the value is judged: the 0 may be what a killed run left.
        let record = Record::new(Owner::current()?, plan.clone());
        if let Some(obstacle) = Journal::obstacle(directories, &record) {
            return Err(obstacle);
        }
        if was == 0 {
            return Err(impossible(
                "it is 0 on this machine already".to_owned(),
                "`sysctl net.core.skb_defer_max=64` makes it the kernel's own",
            ));
        }
        Ok(plan)
    }
}
