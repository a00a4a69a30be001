//! The target of a load: `http://host[:port][/path][?query]`.

use crate::HttpError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

/// The port of plain HTTP (RFC 9110, section 4.2.1).
const PORT: u16 = 80;

/// A parsed URL of plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Url {
    /// The host's name or address, an IPv6 address without its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query; `/` at least.
    pub path: String,
}

impl Url {
    /// Reads a URL. The fragment, which is not the server's business, is left out.
    ///
    /// # Errors
    /// [`HttpError::Invalid`] with what is wrong: another scheme than `http`, credentials, no host, a
    /// port that cannot be, characters that must be percent-encoded.
    pub fn parse(text: &str) -> Result<Self, HttpError> {
        let invalid = |why: &str| HttpError::invalid("url", text, why);
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(invalid("it begins with http://"));
        };
        if scheme.eq_ignore_ascii_case("https") {
            return Err(invalid("TLS is not spoken here; use http://"));
        }
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(invalid("it begins with http://"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let target = target.split('#').next().unwrap_or("");
        if authority.contains('@') {
            return Err(invalid("a name and password before the host are not sent"));
        }
        let (host, port) = split_authority(authority).map_err(invalid)?;
        if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(
                "in its path, percent-encode spaces and all but ASCII",
            ));
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
            path: format!("{slash}{target}"),
        })
    }

    /// The value of the `Host` header.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == PORT {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The first address of the host (getaddrinfo(3)).
    ///
    /// # Errors
    /// The name cannot be resolved.
    pub fn resolve(&self) -> Result<SocketAddr, HttpError> {
        let refused = |source| mpps_os::CallError::new("getaddrinfo", &self.host, source);
        let mut addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(refused)?;
        let none = || refused(std::io::ErrorKind::NotFound.into());
        Ok(addresses.next().ok_or_else(none)?)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

impl TryFrom<String> for Url {
    type Error = HttpError;

    fn try_from(text: String) -> Result<Self, HttpError> {
        Self::parse(&text)
    }
}

impl From<Url> for String {
    fn from(url: Url) -> Self {
        url.to_string()
    }
}

/// Parts host and port.
fn split_authority(authority: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest
            .split_once(']')
            .ok_or("its IPv6 address has no closing bracket")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("what is in brackets is not an IPv6 address");
        }
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err("after the bracket comes a colon and a port, or the path"),
        }
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err("it has no host");
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if !host.bytes().all(is_name) {
        return Err("its host is not a name or an address");
    }
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match port {
        None | Some("") => Ok((host, PORT)),
        Some(port) => match port.parse() {
            Ok(number @ 1..) if is_number(port) => Ok((host, number)),
            _ => Err("its port is not from 1 to 65535"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> Option<(String, u16, String)> {
        let url = Url::parse(text).ok()?;
        Some((url.host, url.port, url.path))
    }

    #[test]
    fn urls_are_taken_apart() {
        for (text, host, port, path) in [
            ("http://a", "a", 80, "/"),
            (
                "HTTP://Example.org:8080/x/y?z=1#part",
                "example.org",
                8080,
                "/x/y?z=1",
            ),
            ("http://127.0.0.1:80?q", "127.0.0.1", 80, "/?q"),
            ("http://[::1]:81/", "::1", 81, "/"),
            ("http://[fe80::1]/a", "fe80::1", 80, "/a"),
            ("http://a:/b", "a", 80, "/b"),
        ] {
            let expected = (host.to_owned(), port, path.to_owned());
            assert_eq!(parts(text), Some(expected), "{text}");
        }
        assert_eq!(
            Url::parse("http://[::1]:81/").unwrap().authority(),
            "[::1]:81"
        );
        assert_eq!(Url::parse("http://a:80/").unwrap().authority(), "a");
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_with_a_reason() {
        for text in [
            "",
            "a",
            "http://",
            "http:///x",
            "https://a/",
            "ftp://a/",
            "http://me:secret@a/",
            "http://a:0/",
            "http://a:65536/",
            "http://a:+80/",
            "http://a b/",
            "http://a/b c",
            "http://a/\r\nX: y",
            "http://a/ü",
            "http://[::1/",
            "http://[a]/",
            "http://[::1]x/",
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(
                matches!(error, HttpError::Invalid { .. }),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn an_address_resolves_to_itself() {
        let url = Url::parse("http://[::1]:8080/").unwrap();
        assert_eq!(url.resolve().unwrap(), "[::1]:8080".parse().unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        #[test]
        fn what_was_read_reads_the_same_when_written(text in "(http://)?[a-z0-9\\[\\]:./?# @-]{0,40}") {
            if let Ok(url) = Url::parse(&text) {
                prop_assert_eq!(Url::parse(&url.to_string()).ok(), Some(url));
            }
        }

        #[test]
        fn nothing_that_splits_a_header_gets_through(text in any::<String>()) {
            if let Ok(url) = Url::parse(&format!("http://{text}")) {
                let sent = format!("{}{}", url.authority(), url.path);
                prop_assert!(sent.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
