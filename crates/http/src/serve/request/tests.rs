//! The parser against the examples of the RFCs, and against a plain reading of their grammar.

use super::*;
use proptest::prelude::*;

const HEAD_BYTES_MAX: usize = 8 << 10;

fn parse(text: &[u8]) -> Parsed<'_> {
    super::parse(text, HEAD_BYTES_MAX)
}

fn request(text: &str) -> HttpRequest<'_> {
    match parse(text.as_bytes()) {
        Parsed::Whole {
            request,
            head_bytes,
        } => {
            assert_eq!(head_bytes, text.len());
            request
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refusal(text: &str) -> u16 {
    match parse(text.as_bytes()) {
        Parsed::Refused(status) => status,
        other => panic!("{text:?}: {other:?}"),
    }
}

/// A GET over HTTP/1.1 with these fields besides Host.
fn with(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn a_plain_request() {
    let text = with("");
    let parsed = request(&text);
    assert_eq!(parsed.method, Method::Get);
    assert_eq!(parsed.path, "/");
    assert!(parsed.is_1_1 && parsed.keep_alive);
    assert_eq!(parsed.content, RequestContent::Length(0));
}

#[test]
fn the_connection_goes_on_as_version_and_field_say() {
    let keeps = |version, field| {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n");
        request(&text).keep_alive
    };
    assert!(keeps("1.1", ""));
    assert!(!keeps("1.1", "Connection: close\r\n"));
    assert!(!keeps("1.1", "Connection: keep-alive, CLOSE\r\n"));
    assert!(!keeps("1.1", "connection: x\r\nConnection: ,close ,\r\n"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn targets_in_their_forms() {
    let target = |target: &str| {
        let text = format!("GET {target} HTTP/1.0\r\n\r\n");
        match parse(text.as_bytes()) {
            Parsed::Whole { request, .. } => request.path.to_owned(),
            Parsed::Refused(status) => status.to_string(),
            Parsed::Part => panic!("{target}"),
        }
    };
    assert_eq!(target("/a%20b?c=d?e"), "/a%20b");
    assert_eq!(target("http://a/b?c"), "/b");
    assert_eq!(target("HTTP://a:80"), "/");
    assert_eq!(target("https://[::1]:8?q"), "/");
    assert_eq!(target("//a//b"), "//a//b");
    for bad in [
        "*",
        "a",
        "ftp://a/",
        "http:///b",
        "http://u@a/",
        "/a#b",
        "http://a#b",
        "a:80",
    ] {
        assert_eq!(target(bad), "400", "{bad}");
    }
}

#[test]
fn methods_and_versions_have_their_statuses() {
    let method = |method: &str| request(&format!("{method} / HTTP/1.0\r\n\r\n")).method;
    assert_eq!(method("HEAD"), Method::Head);
    assert_eq!(method("POST"), Method::NotAllowed);
    assert_eq!(method("get"), Method::Unknown);
    assert_eq!(method("BREW"), Method::Unknown);
    assert_eq!(
        request("OPTIONS * HTTP/1.0\r\n\r\n").method,
        Method::NotAllowed
    );
    assert_eq!(refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_eq!(refusal("GET / HTTP/0.9\r\n\r\n"), 505);
    for line in [
        "GET /",
        "GET / HTTP/1",
        "GET / HTTP/1.10",
        "GET / HTTQ/1.1",
        "GET  / HTTP/1.1",
    ] {
        assert_eq!(refusal(&format!("{line}\r\n\r\n")), 400, "{line}");
    }
}

#[test]
fn a_request_is_for_one_host() {
    assert_eq!(refusal("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(refusal(&with("Host: b\r\n")), 400);
    assert_eq!(refusal("GET / HTTP/1.0\r\nHost: a\r\nhost: a\r\n\r\n"), 400);
    assert_eq!(refusal("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400);
    assert_eq!(refusal("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400);
    request("GET / HTTP/1.1\r\nHost:\r\n\r\n");
    request("GET / HTTP/1.1\r\nHost: [fe80::1]:8080\r\n\r\n");
}

#[test]
fn where_a_request_ends_is_beyond_doubt() {
    let content = |fields: &str| request(&with(fields)).content;
    assert_eq!(content("Content-Length: 0\r\n"), RequestContent::Length(0));
    assert_eq!(
        content("content-length:  42 \r\n"),
        RequestContent::Length(42)
    );
    assert_eq!(
        content("Transfer-Encoding: Chunked\r\n"),
        RequestContent::Unbounded
    );
    assert_eq!(
        content("Expect: 100-continue\r\n"),
        RequestContent::Length(0)
    );
    assert_eq!(
        content("Content-Length: 5\r\nExpect: 100-continue\r\n"),
        RequestContent::Unbounded
    );
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length : 5\r\n",
        " Content-Length: 5\r\n",
        "X: a\r\n folded\r\n",
    ] {
        assert_eq!(refusal(&with(fields)), 400, "{fields}");
    }
    for fields in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: \r\n",
    ] {
        assert_eq!(refusal(&with(fields)), 501, "{fields}");
    }
    let old = "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refusal(old), 400);
}

#[test]
fn what_is_too_long_is_refused_and_what_just_fits_is_not() {
    let fitting = |spare: usize| {
        let empty = with("X: \r\n").len();
        with(&format!(
            "X: {}\r\n",
            "x".repeat(HEAD_BYTES_MAX - empty - spare)
        ))
    };
    assert_eq!(fitting(0).len(), HEAD_BYTES_MAX);
    request(&fitting(0));
    let longer = fitting(0).replace("X: ", "X: y");
    assert_eq!(refusal(&longer), 431);
    assert_eq!(refusal(&longer[..HEAD_BYTES_MAX]), 431);
    assert_eq!(
        parse(&longer.as_bytes()[..HEAD_BYTES_MAX - 1]),
        Parsed::Part
    );
    let target = format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(refusal(&target), 414);
    assert_eq!(refusal(&with(&"a:\r\n".repeat(FIELDS_MAX))), 431);
    request(&with(&"a:\r\n".repeat(FIELDS_MAX - 1)));
}

#[test]
fn a_part_of_any_request_is_a_part() {
    for text in [with("A: b\r\n"), "\r\n\nHEAD /x HTTP/1.0\n\n".to_owned()] {
        for end in 0..text.len() {
            assert_eq!(
                parse(&text.as_bytes()[..end]),
                Parsed::Part,
                "{end}: {text}"
            );
        }
        request(&text);
    }
}

/// The result of a plain reading.
#[derive(Debug)]
enum Plain {
    Part,
    /// Method, target, whether to keep it alive, content, bytes of the head.
    Whole(Method, String, bool, RequestContent, usize),
    /// Any of these is right.
    Refused(Vec<u16>),
}

/// RFC 9112 line by line, without a thought of speed.
fn plainly(bytes: &[u8]) -> Plain {
    let mut lines = Vec::new();
    let mut head_bytes = 0;
    let mut is_whole = false;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else {
            break;
        };
        head_bytes += line.len();
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        match (text.is_empty(), lines.is_empty()) {
            (true, true) => {}
            (true, false) => {
                is_whole = true;
                break;
            }
            (false, _) => lines.push(text),
        }
    }
    if !is_whole {
        return Plain::Part;
    }
    let mut faults = Vec::new();
    let first: Vec<&[u8]> = lines[0].split(|&byte| byte == b' ').collect();
    let fields = plain_fields(&lines[1..], &mut faults);
    let &[method, target, version] = &first[..] else {
        return Plain::Refused([faults, vec![400]].concat());
    };
    if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) {
        faults.push(400);
    }
    let target = str::from_utf8(target).unwrap_or("");
    if target.is_empty() || target.bytes().any(|byte| byte <= b' ' || byte == 127) {
        faults.push(400);
    }
    let is_1_1 = version == b"HTTP/1.1";
    if !is_1_1 && version != b"HTTP/1.0" {
        let is_http = version.len() == 8
            && version.starts_with(b"HTTP/")
            && version[5].is_ascii_digit()
            && version[6] == b'.'
            && version[7].is_ascii_digit();
        faults.push(if is_http { 505 } else { 400 });
    }
    let (keep_alive, content) = plain_meaning(&fields, is_1_1, &mut faults);
    let is_get = [&b"GET"[..], b"HEAD"].contains(&method);
    let is_absolute = target.to_ascii_lowercase().starts_with("http")
        && target.split_once("://").is_some_and(|(scheme, rest)| {
            let authority = rest.split(['/', '?']).next().unwrap_or("");
            ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str())
                && !authority.is_empty()
                && authority.bytes().all(is_host)
        });
    if is_get && (target.contains('#') || !target.starts_with('/') && !is_absolute) {
        faults.push(400);
    }
    if !faults.is_empty() {
        return Plain::Refused(faults);
    }
    let method = Method::of(&String::from_utf8_lossy(method));
    Plain::Whole(method, target.to_owned(), keep_alive, content, head_bytes)
}

fn plain_fields(lines: &[&[u8]], faults: &mut Vec<u16>) -> Vec<(String, Vec<u8>)> {
    if lines.len() > FIELDS_MAX {
        faults.push(431);
    }
    let mut fields = Vec::new();
    for line in lines {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
        let (name, value) = line.split_at(colon);
        let is_text = |byte: &u8| *byte == b'\t' || *byte >= b' ' && *byte != 127;
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) || !value.iter().all(is_text)
        {
            faults.push(400);
            continue;
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        fields.push((name, value[1..].trim_ascii().to_vec()));
    }
    fields
}

fn plain_meaning(
    fields: &[(String, Vec<u8>)],
    is_1_1: bool,
    faults: &mut Vec<u16>,
) -> (bool, RequestContent) {
    let all = |name: &str| -> Vec<&[u8]> {
        let found = fields.iter().filter(|(other, _)| other == name);
        found.map(|(_, value)| value.as_slice()).collect()
    };
    match all("host")[..] {
        [] if !is_1_1 => {}
        [host] if host.iter().all(|&byte| is_host(byte)) => {}
        _ => faults.push(400),
    }
    let mut content = RequestContent::Length(0);
    match all("content-length")[..] {
        [] => {}
        [length] if length.iter().all(u8::is_ascii_digit) => {
            match String::from_utf8_lossy(length).parse() {
                Ok(0) => {}
                Ok(_) if !all("expect").is_empty() => content = RequestContent::Unbounded,
                Ok(length) => content = RequestContent::Length(length),
                Err(_) => faults.push(400),
            }
        }
        _ => faults.push(400),
    }
    match all("transfer-encoding")[..] {
        [] => {}
        ref encodings => {
            content = RequestContent::Unbounded;
            if !is_1_1 || !all("content-length").is_empty() {
                faults.push(400);
            }
            if encodings.len() != 1 || !encodings[0].eq_ignore_ascii_case(b"chunked") {
                faults.push(501);
            }
        }
    }
    let options = all("connection").join(&b',');
    let options = String::from_utf8_lossy(&options).to_ascii_lowercase();
    let has = |name| options.split(',').any(|option| option.trim_ascii() == name);
    (!has("close") && (is_1_1 || has("keep-alive")), content)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(&byte)
}

/// Heads, most of them nearly right.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![8 => "GET|HEAD", 1 => "[A-Z]{0,5}"];
    let target = prop_oneof![
        4 => "/[a-z0-9%./]{0,12}(\\?[a-z=&]{0,8})?",
        1 => "(http|HTTPS|ftp)://[a-z0-9.:@]{0,8}[/?#]?[a-z]{0,4}",
        1 => "[!-~]{0,6}",
    ];
    let version = prop_oneof![
        6 => Just("HTTP/1.1".to_owned()),
        2 => Just("HTTP/1.0".to_owned()),
        1 => "HTTP/[0-9][.,][0-9]{1,2}",
        1 => "[A-Z/0-9.]{0,9}",
    ];
    let field = prop_oneof![
        4 => Just("Host: a".to_owned()),
        2 => "(content-length|Content-Length): {0,2}[0-9]{1,3}",
        1 => "Content-Length:[-+0-9, x]{0,21}",
        2 => "Transfer-Encoding: (chunked|Chunked|gzip, chunked|identity)",
        3 => "[Cc]onnection: (close|keep-alive|Keep-Alive|, close,|upgrade)",
        1 => Just("Expect: 100-continue".to_owned()),
        2 => "[a-zA-Z-]{1,6}:[ -~]{0,8}",
        1 => "[ -~]{0,8}",
        1 => "Host:[ -~]{0,5}",
    ];
    let line_end = prop_oneof![8 => Just("\r\n"), 1 => Just("\n")];
    let fields = prop::collection::vec((field, line_end.clone()), 0..6);
    (line_end, method, target, version, fields, any::<bool>()).prop_map(
        |(end, method, target, version, fields, has_host)| {
            let mut text = format!("{method} {target} {version}{end}");
            if has_host {
                text.push_str("Host: b\r\n");
            }
            for (field, end) in fields {
                text.push_str(&field);
                text.push_str(end);
            }
            text.push_str(end);
            text.into_bytes()
        },
    )
}

/// The same with a few bytes changed.
fn damaged_head() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (head(), damage).prop_map(|(mut head, damage)| {
        for (index, byte) in damage {
            let index = index.index(head.len());
            head[index] = byte;
        }
        head
    })
}

fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    match (plainly(bytes), parse(bytes)) {
        // A fault may be seen before the head is whole.
        (Plain::Part, Parsed::Part | Parsed::Refused(_)) => {}
        (Plain::Refused(faults), Parsed::Refused(status)) => {
            prop_assert!(faults.contains(&status), "{status} is none of {faults:?}");
        }
        (
            Plain::Whole(method, target, keep_alive, content, bytes),
            Parsed::Whole {
                request,
                head_bytes,
            },
        ) => {
            prop_assert_eq!(
                (
                    request.method,
                    request.keep_alive,
                    request.content,
                    head_bytes
                ),
                (method, keep_alive, content, bytes)
            );
            let is_file = matches!(request.method, Method::Get | Method::Head);
            let local = target.split('?').next().unwrap_or("");
            let is_end = local.ends_with(request.path) || request.path == "/";
            prop_assert!(!is_file || is_end, "{} of {target}", request.path);
        }
        (plain, parsed) => prop_assert!(false, "{plain:?} against {parsed:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2_000 }))]

    #[test]
    fn heads_are_read_as_the_grammar_says(head in head()) {
        agree(&head)?;
    }

    #[test]
    fn damaged_heads_are_read_as_the_grammar_says(head in damaged_head()) {
        agree(&head)?;
    }

    /// A decision stays, whatever bytes follow.
    #[test]
    fn more_bytes_change_nothing(head in damaged_head(), more in "[ -~\r\n]{0,20}", at in 0usize..400) {
        let whole = [&head[..], more.as_bytes()].concat();
        let at = at.min(whole.len());
        let earlier = parse(&whole[..at]);
        if earlier != Parsed::Part {
            prop_assert_eq!(earlier, parse(&whole));
        }
    }
}
