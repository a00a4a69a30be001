//! The kernel's own reuse of packet buffers across CPUs, switched off and on again.
//!
//! A CPU does not free an `sk_buff` of another CPU. It puts the buffer on a list. The other CPU
//! frees it from there into its own cache (`skb_attempt_defer_free` in net/core/skbuff.c).
//! `net.core.skb_defer_max` is the length of a full list (Linux 5.19). With 0 all lists stay empty,
//! and every CPU frees by itself. It is one setting for the whole machine. Only the initial network
//! namespace shows it (`net_core_table` in net/core/sysctl_net_core.c).

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::setting::{
    Edit, Journal, LiveKernel, Place, SKB_DEFER_MAX, Setting, SettingChange, SettingHost, Value,
    directory,
};
use crate::{HostError, HostResult};

/// The change that switches the lists off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkbDefer {
    /// The setting as it was found, in packets.
    pub was: u32,
    /// How it is changed.
    pub change: SettingChange,
}

impl SkbDefer {
    /// Finds out what the setting is. Changes nothing.
    ///
    /// # Errors
    /// [`HostError::Impossible`] where there is no such setting, where it is 0 already, or where
    /// another process changed it or died and left it changed; [`HostError::Kernel`].
    pub fn plan() -> HostResult<Self> {
        Self::plan_on(&LiveKernel::default(), &directory())
    }

    fn plan_on(host: &dyn SettingHost, directory: &Path) -> HostResult<Self> {
        let impossible =
            |why: &str, remedy: &str| HostError::impossible(SKB_DEFER_MAX, why, remedy);
        let setting = SKB_DEFER_MAX.to_owned();
        let place = Place::Machine { setting };
        let Some(Value::Number(found)) = host.read(&Setting::SkbDefer, &place)? else {
            return Err(impossible(
                "there is none here",
                "this needs Linux 5.19 and the initial network namespace",
            ));
        };
        let was = u32::try_from(found)
            .map_err(|_| HostError::malformed(SKB_DEFER_MAX, format!("{found} is no length")))?;
        let [old, new] = [found, 0].map(Value::Number);
        let edits = vec![Edit::new(Setting::SkbDefer, old, new)];
        let heading = "this machine".to_owned();
        let change = SettingChange::new(host, place, "setting", heading, edits)?;
        // Before the value is judged: the 0 may be what a killed run left.
        if let Some(obstacle) = Journal::obstacle(directory, &change) {
            return Err(obstacle);
        }
        if was == 0 {
            return Err(impossible(
                "it is 0 on this machine already",
                "`sysctl net.core.skb_defer_max=64` makes it the kernel's own",
            ));
        }
        Ok(Self { was, change })
    }
}
