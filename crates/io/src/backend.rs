//! The table of backends: every way to move packets, one row each.
//!
//! To add one, copy `backend/memory.rs` and add two lines here. The command-line flag, the JSON
//! value, the table in docs/backends.md and the conformance suite follow from the row.

mod af_xdp;
mod answers;
mod dpdk;
mod held_port;
mod io_uring;
mod memory;
mod packet_mmap;
mod pcap;
mod recv;
mod recvmmsg;
mod send;
mod sendmmsg;
mod shared_socket;
mod socket;
mod xdp;

use crate::{Error, Layer, Rx, RxConfig, Tx, TxConfig};
use mpps_os::capability::Rights;
use std::fmt;

/// Whether this host can run a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Yes,
    /// It cannot.
    No {
        /// The missing part.
        why: String,
        /// The remedy for the user.
        remedy: String,
    },
}

impl Support {
    fn no(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (why, remedy) = (why.into(), remedy.into());
        Self::No { why, remedy }
    }

    /// The same of a refusal: a limit of this process says nothing of the kernel.
    fn refused(refusal: &mpps_os::CallError, remedy: impl Into<String>) -> Self {
        let limit = Rights::own().limit_remedy(refusal);
        Self::no(refusal.to_string(), limit.unwrap_or_else(|| remedy.into()))
    }
}

/// Opens a backend's receiver.
type OpenRx = fn(&RxConfig) -> Result<Box<dyn Rx>, Error>;
/// Opens a backend's sender.
type OpenTx = fn(&TxConfig) -> Result<Box<dyn Tx>, Error>;

/// One way to receive, to send, or both. Its name is spelt the same in the flag, the file, the
/// JSON and the docs.
///
/// ```
/// use mpps_io::BACKENDS;
/// use mpps_io::backend::Support;
///
/// for backend in BACKENDS.iter().filter(|backend| backend.receives()) {
///     match (backend.probe)() {
///         Support::Yes => println!("{}: {}", backend.name, backend.summary),
///         Support::No { why, remedy } => println!("{}: {why}; {remedy}", backend.name),
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Backend {
    /// The name.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The requirements in one line.
    pub needs: &'static str,
    /// The layer of its packets.
    pub layer: Layer,
    /// True if it takes a whole NIC, or queue, away from the kernel.
    pub takes_nic: bool,
    /// True if it moves packets inside one process only, which makes it a test's and an example's.
    pub in_process: bool,
    /// Whether this host can run it.
    pub probe: fn() -> Support,
    /// The fields of [`RxConfig`] that it honours; it refuses the others.
    pub rx_fields: &'static [&'static str],
    /// The fields of [`TxConfig`] that it honours; it refuses the others.
    pub tx_fields: &'static [&'static str],
    pub(crate) rx: Option<OpenRx>,
    pub(crate) tx: Option<OpenTx>,
}

/// Every backend of this build, plain ones first.
pub static BACKENDS: &[Backend] = &[
    memory::BACKEND,
    recv::BACKEND,
    recvmmsg::BACKEND,
    io_uring::BACKEND,
    packet_mmap::BACKEND,
    pcap::BACKEND,
    af_xdp::BACKEND,
    send::BACKEND,
    sendmmsg::BACKEND,
    xdp::BACKEND,
    dpdk::BACKEND,
];

/// The name that lets [`find`] choose.
pub const BEST: &str = "best";

/// The backend of that name. [`BEST`] is the fastest here that receives as an ordinary socket does,
/// without privilege or interface: `io_uring` where the kernel allows it, otherwise `recvmmsg`. Those that
/// go around the kernel's stack, and so around its packet filter, are chosen by their own names.
///
/// # Errors
/// [`Error::UnknownBackend`] with the names that exist.
pub fn find(name: &str) -> Result<&'static Backend, Error> {
    let name = match name {
        BEST if (io_uring::BACKEND.probe)() == Support::Yes => io_uring::BACKEND.name,
        BEST => recvmmsg::BACKEND.name,
        name => name,
    };
    BACKENDS
        .iter()
        .find(|backend| backend.name == name)
        .ok_or_else(|| {
            let known: Vec<&str> = BACKENDS.iter().map(|backend| backend.name).collect();
            Error::UnknownBackend {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })
}

impl Backend {
    /// Opens a receiver.
    ///
    /// # Errors
    /// A field that this backend does not support, a value that no backend takes, or the kernel's
    /// refusal.
    pub fn open_rx(&self, config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
        config.check()?;
        let open = self.rx.ok_or(self.unsupported("receiving"))?;
        self.refuse(&config.asked(), self.rx_fields)?;
        open(config)
    }

    /// Opens a receiver for each receive queue of the interface, from the configured one on
    /// ([`RxCaps::queue`](crate::RxCaps::queue) names the queue). If the backend does not read
    /// single queues, it opens one in all. A packet that comes by a queue without a receiver is
    /// lost to all.
    ///
    /// # Errors
    /// As [`Backend::open_rx`]; all are closed again if one cannot be opened.
    pub fn open_rx_queues(&self, config: &RxConfig) -> Result<Vec<Box<dyn Rx>>, Error> {
        let first = self.open_rx(config)?;
        let queue = first.caps().queue.as_ref();
        let left = queue.map_or(0, |queue| queue.of - queue.number - 1);
        let others = (0..left).map(|_| first.share());
        let others = others.collect::<Result<Vec<_>, Error>>()?;
        Ok(std::iter::once(first).chain(others).collect())
    }

    /// Opens a sender.
    ///
    /// # Errors
    /// A field that this backend does not support, a value that no backend takes, or the kernel's
    /// refusal.
    pub fn open_tx(&self, config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
        config.check()?;
        let open = self.tx.ok_or(self.unsupported("sending"))?;
        self.refuse(&config.asked(), self.tx_fields)?;
        open(config)
    }

    /// True if it can receive.
    pub fn receives(&self) -> bool {
        self.rx.is_some()
    }

    /// True if it can send.
    pub fn sends(&self) -> bool {
        self.tx.is_some()
    }

    /// Refuses the first field asked for that is not honoured.
    fn refuse(&self, asked: &[&'static str], honoured: &[&str]) -> Result<(), Error> {
        let refused = asked.iter().find(|field| !honoured.contains(field));
        refused.map_or(Ok(()), |field| Err(self.unsupported(field)))
    }

    pub(crate) fn unsupported(&self, field: &'static str) -> Error {
        Error::Unsupported {
            backend: self.name,
            field,
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_an_ordinary_socket() {
        let best = find(BEST).unwrap();
        assert!(["io_uring", "recvmmsg"].contains(&best.name), "{best:?}");
        best.open_rx(&RxConfig::new("127.0.0.1:0".parse().unwrap()))
            .unwrap();
        let unknown = find("fastest").unwrap_err().to_string();
        assert!(
            unknown.contains("`fastest`") && unknown.contains("recvmmsg"),
            "{unknown}"
        );
    }

    /// Such an answer is sent, and arrives nowhere.
    #[test]
    fn frames_answer_no_one_on_the_loopback_interface() {
        let mut config = RxConfig::new("127.0.0.1:0".parse().unwrap());
        config.answers = true;
        let open = |name| find(name).and_then(|backend| backend.open_rx(&config));
        let refused = open("af_xdp").unwrap_err().to_string();
        assert!(refused.contains("answer by `recvmmsg`"), "{refused}");
        assert!(open("recvmmsg").is_ok());
    }
}
