//! The network namespaces of containers and of `ip netns`, each with its own totals, as long as they exist.

use super::ExporterTotals;
use crate::output::{self, OutputStream};
use crate::program::container::{names_by_id, namespaces};
use anyhow::Result;
use mpps_host::facts::namespace_name;
use mpps_host::{DoctorRequest, HostResult, Watch};
use mpps_os::namespace::NetNamespace;
use mpps_os::text::Foreign;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Further namespaces are not looked at.
const CONTAINERS_MAX: usize = 64;
/// So that the first looks at others do not hold up those known, this many new ones begin with each.
const NEW_MAX: usize = 4;
/// How often new ones are looked for.
const PAUSE: Duration = Duration::from_secs(5);

/// Namespaces that are looked at one after the other.
pub(crate) struct Containers {
    own: NetNamespace,
    all: BTreeMap<u64, WatchedContainer>,
    /// Those that the last look could not begin with.
    left: BTreeSet<PathBuf>,
    due: Instant,
}

struct WatchedContainer {
    /// It is opened for each look: an open file would keep a namespace whose container has gone.
    path: PathBuf,
    watch: Watch,
    totals: ExporterTotals,
}

impl Containers {
    /// Those besides the namespace of this thread.
    ///
    /// # Errors
    /// If that cannot be opened.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            own: NetNamespace::current()?,
            all: BTreeMap::new(),
            left: BTreeSet::new(),
            due: Instant::now(),
        })
    }

    /// The totals of all.
    pub(crate) fn totals(&self) -> impl Iterator<Item = &ExporterTotals> + Clone {
        self.all.values().map(|one| &one.totals)
    }

    /// Looks at each once more. Answers whether each could be looked at.
    ///
    /// # Errors
    /// If the namespace of this thread cannot be entered again, or standard error takes no line.
    pub(crate) fn look(&mut self, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        let (mut is_whole, before) = (true, self.all.len());
        self.all.retain(|&inode, one| {
            let looked = enter(&one.path, inode).is_some_and(|()| one.look(goes_on).is_ok());
            looked || !goes_on()
        });
        if self.all.len() < before || self.due <= Instant::now() {
            is_whole = self.find(goes_on)?;
        }
        self.own.enter()?;
        Ok(is_whole && self.left.is_empty())
    }

    /// Begins to look at new ones, and says once which it cannot. Answers whether it has seen all.
    fn find(&mut self, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        let root = Path::new("/");
        let mut found = namespaces(root);
        found.remove(&self.own.inode().into());
        self.all.retain(|inode, _| found.contains_key(inode));
        found.retain(|inode, _| !self.all.contains_key(inode));
        let names = match found.is_empty() {
            true => BTreeMap::new(),
            false => names_by_id(root),
        };
        let (mut begun, mut left) = (0, BTreeSet::new());
        self.due = Instant::now() + PAUSE;
        for (inode, (path, id)) in found {
            if begun == NEW_MAX || !goes_on() {
                self.due = Instant::now();
                return Ok(false);
            }
            let name = id.map(|id| names.get(&id).unwrap_or(&id).clone());
            let number = u32::try_from(inode).unwrap_or_default();
            let container = name.unwrap_or_else(|| namespace_name(number));
            let mut container = Foreign(container).to_string();
            // A series must not come twice.
            if self.totals().any(|one| one.container == container) {
                container = format!("{container}-{inode}");
            }
            let is_room = self.all.len() < CONTAINERS_MAX;
            let entered = is_room.then(|| enter(&path, inode)).flatten();
            let watch = entered.map(|()| Watch::begin(None, DoctorRequest::default()));
            let Some(Ok(mut watch)) = watch else {
                if !self.left.contains(&path) {
                    let shown = Foreign(path.display());
                    let why = match is_room {
                        true => "it cannot be entered".to_owned(),
                        false => format!("{CONTAINERS_MAX} others are"),
                    };
                    let text =
                        format!("mpps: the network namespace {shown} is not looked at: {why}");
                    output::line(OutputStream::Err, &text)?;
                }
                left.insert(path);
                continue;
            };
            begun += 1;
            watch.leave_out_owners();
            let totals = ExporterTotals {
                container,
                ..ExporterTotals::default()
            };
            let one = WatchedContainer {
                path,
                watch,
                totals,
            };
            self.all.insert(inode, one);
        }
        self.left = left;
        Ok(true)
    }
}

impl WatchedContainer {
    fn look(&mut self, goes_on: &dyn Fn() -> bool) -> HostResult<()> {
        self.watch.look_while(goes_on)?;
        let watch = &self.watch;
        self.totals.look(&watch.seen(), &watch.seen_in_all());
        Ok(())
    }
}

/// Enters the namespace of a file, if it still is that of this number.
fn enter(path: &Path, inode: u64) -> Option<()> {
    let namespace = NetNamespace::open(path.to_str()?).ok()?;
    let is_same = u64::from(namespace.inode()) == inode;
    is_same.then(|| namespace.enter().ok()).flatten()
}
