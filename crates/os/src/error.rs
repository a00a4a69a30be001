//! Refusals of the kernel: the call, the object it was about, and the answer.

use crate::text::Foreign;
use std::fmt;
use std::io;

/// A refusal by the kernel: the call, its object, and the `errno`.
///
/// The remedy is not known here; the command that meets the error adds it.
#[derive(thiserror::Error)]
#[error("{call} {}: {source}{}", Foreign(.object), self.words())]
pub struct CallError {
    /// The system call, or the file operation, that failed (`bind`, `setsockopt SO_RCVBUF`, `open`).
    pub call: &'static str,
    /// The object of the call: an address, an interface, a path.
    pub object: String,
    /// The kernel's answer.
    pub source: io::Error,
    /// The kernel's own explanation, as in netlink (`NLMSGERR_ATTR_MSG`, netlink(7)); empty if it
    /// gave none.
    pub said: String,
}

/// Prints the text of `Display`, because `fn main() -> Result<(), Error>` prints an error this way.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CallError {
    /// Joins a kernel answer with the call and the object that it is about.
    pub fn new(call: &'static str, object: impl fmt::Display, source: io::Error) -> Self {
        Self {
            call,
            object: object.to_string(),
            source,
            said: String::new(),
        }
    }

    /// The same for the calling thread's last `errno`.
    pub fn last(call: &'static str, object: impl fmt::Display) -> Self {
        Self::new(call, object, io::Error::last_os_error())
    }

    fn words(&self) -> String {
        match self.said.as_str() {
            "" => String::new(),
            said => format!(": the kernel says `{}`", Foreign(said)),
        }
    }

    /// The `errno` value, where the source carries one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// True if something has run out for now: that says nothing of what this kernel can do.
    pub fn is_shortage(&self) -> bool {
        use libc::{EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM};
        let errno = self.errno();
        errno.is_some_and(|errno| [EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(&errno))
    }
}

/// Says of a refusal which call it was, and on what.
pub trait On<T> {
    /// Joins the kernel's answer with the call and the object that it is about.
    ///
    /// # Errors
    /// That answer.
    fn on(self, call: &'static str, object: impl fmt::Display) -> CallResult<T>;
}

impl<T, E: Into<io::Error>> On<T> for std::result::Result<T, E> {
    fn on(self, call: &'static str, object: impl fmt::Display) -> CallResult<T> {
        self.map_err(|error| CallError::new(call, object, error.into()))
    }
}

/// Pairs of a number and its name.
macro_rules! named {
    ($($name:ident)*) => { [$((libc::$name, stringify!($name))),*] };
}

/// The errors of sockets, rings and what they are made of (errno(3)).
#[rustfmt::skip]
static NAMES: &[(i32, &str)] = &named! {
    EPERM ENOENT EINTR EIO ENXIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL
    ENFILE EMFILE EFBIG ENOSPC EPIPE ERANGE ENOSYS ETIME EPROTO EOVERFLOW ENOTSOCK EDESTADDRREQ
    EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET
    ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH
    EALREADY EINPROGRESS ECANCELED
};

/// An `errno` by its name and in words: `ECONNREFUSED, Connection refused`.
pub fn errno_text(errno: i32) -> String {
    let told = io::Error::from_raw_os_error(errno).to_string();
    let words = told.split(" (os error").next().unwrap_or(&told);
    match NAMES.iter().find(|(number, _)| *number == errno) {
        Some((_, name)) => format!("{name}, {words}"),
        None => format!("errno {errno}, {words}"),
    }
}

/// A result whose error is a kernel refusal.
pub type CallResult<T, E = CallError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_named_steers_no_terminal() {
        let mut error = CallError::new("bind", "eth\x1b[2J\n0", io::ErrorKind::NotFound.into());
        error.said = "no\x07".to_owned();
        let text = "bind eth\u{fffd}[2J 0: entity not found: the kernel says `no\u{fffd}`";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_shortage_is_told_from_what_the_kernel_cannot_do() {
        let is_short =
            |errno| CallError::new("x", "y", io::Error::from_raw_os_error(errno)).is_shortage();
        assert!(is_short(libc::EMFILE) && is_short(libc::ENOMEM));
        assert!(!is_short(libc::EOPNOTSUPP) && !is_short(libc::ENOENT));
    }

    #[test]
    fn an_errno_has_a_name_and_words() {
        let text = "ENOPROTOOPT, Protocol not available";
        assert_eq!(errno_text(libc::ENOPROTOOPT), text);
        assert_eq!(
            errno_text(libc::EXDEV),
            "errno 18, Invalid cross-device link"
        );
        assert!(errno_text(4095).starts_with("errno 4095, "));
    }
}
