//! Requirements of a trial, and their checks. A check runs in the trial's own process, which
//! becomes root in a user namespace if necessary.

use mpps_os::capability;
use mpps_os::namespace::{NetNamespace, become_root_in_user_namespace};
use std::fmt;
use std::sync::Arc;

/// A requirement of a trial.
#[derive(Clone)]
pub enum Need {
    /// Network namespaces. An ordinary user has them in a user namespace.
    Namespace,
    /// Root in the initial user namespace.
    Root,
    /// At least this many CPUs.
    Cpus(usize),
    /// A program, or several separated by blanks, and the package that has it. Of names separated
    /// by `|`, one is enough.
    Program(&'static str, &'static str),
    /// A check, which returns why the requirement is not met.
    Probe(Arc<dyn Fn() -> Result<(), String> + Send + Sync>),
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => f.write_str("Namespace"),
            Self::Root => f.write_str("Root"),
            Self::Cpus(cpus) => write!(f, "Cpus({cpus})"),
            Self::Program(names, package) => write!(f, "Program({names}, {package})"),
            Self::Probe(_) => f.write_str("Probe"),
        }
    }
}

impl Need {
    /// A requirement with a check, which returns why it is not met.
    pub fn probe(probe: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self::Probe(Arc::new(probe))
    }

    pub(crate) fn is_program(&self) -> bool {
        matches!(self, Self::Program(..))
    }

    pub(crate) fn look(&self) -> Result<(), String> {
        match self {
            Self::Namespace => able(),
            Self::Root => root(),
            Self::Cpus(cpus) => {
                let usable = std::thread::available_parallelism().map_or(1, usize::from);
                let few = || format!("it needs {cpus} CPUs, and this process may use {usable}");
                (usable >= *cpus).then_some(()).ok_or_else(few)
            }
            Self::Program(names, package) => program(names, package),
            Self::Probe(probe) => probe(),
        }
    }
}

/// Becomes able to make network namespaces, if this machine allows it. It may change the user of
/// this process, so a trial of an ordinary user's rights must not need it.
///
/// # Errors
///
/// The reason why no namespace can be made.
pub fn able() -> Result<(), String> {
    if !capability::effective(capability::CAP_SYS_ADMIN) {
        let made = become_root_in_user_namespace();
        made.map_err(|error| format!("no user namespace: {error}"))?;
    }
    let namespace = NetNamespace::new();
    namespace
        .map(drop)
        .map_err(|error| format!("no network namespace: {error}"))
}

/// Checks that this is root.
///
/// # Errors
///
/// The user does not have root's rights here.
pub fn root() -> Result<(), String> {
    let initial = capability::in_initial_user_namespace();
    if initial && capability::effective(capability::CAP_SYS_ADMIN) {
        return Ok(());
    }
    Err("this user is not root".to_owned())
}

/// Checks that a program is here, or each of several separated by blanks. Of names separated by
/// `|`, one is enough. Programs for administrators are only found in their `PATH`.
///
/// # Errors
///
/// The missing program, and the package that has it.
pub fn program(names: &str, package: &str) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    match names
        .split(' ')
        .find(|names| !names.split('|').any(is_there))
    {
        Some(name) => Err(format!("no {name} here (package {package})")),
        None => Ok(()),
    }
}
