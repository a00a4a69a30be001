//! The flag of each configuration field that an error of a library names.

/// A library's fields, as its errors name them, each with its flag.
#[derive(Debug)]
pub(crate) struct Flags(&'static [(&'static str, &'static str)]);

/// The fields, methods and values of `mpps-io`.
pub(crate) const IO: Flags = Flags(&[
    ("backend af_xdp", "--backend af_xdp"),
    ("batch", "--batch"),
    ("buffer_bytes", "--buffer"),
    ("busy_poll_us", "--busy-poll"),
    ("connect = false", "--no-connect"),
    ("flows", "--flows"),
    ("gro", "--gro"),
    ("groups", "--join"),
    ("gso_segments", "--gso"),
    ("payload_bytes", "--size"),
    ("receive_buffer_bytes", "--rcvbuf"),
    ("reuse_port", "--reuseport"),
    ("ring.all_traffic", "--all-traffic"),
    ("ring.arguments", "--dpdk-args"),
    ("ring.attach", "--xdp"),
    ("ring.copy", "--copy"),
    ("ring.fanout", "--fanout"),
    ("ring.frames", "--ring"),
    ("ring.hugepages", "--hugepages"),
    ("ring.interface", "--interface"),
    ("ring.queue", "--queue"),
    ("ring.take", "--take"),
    ("ring.target_mac", "--target-mac"),
    ("send_buffer_bytes", "--sndbuf"),
    ("share", "--threads"),
    ("steer_by_cpu", "--steer cpu"),
    ("Wait::Spin", "--wait spin"),
]);

/// The fields of `mpps-http`.
pub(crate) const HTTP: Flags = Flags(&[
    ("close", "--close"),
    ("connections", "--connections"),
    ("content", "--size"),
    ("cpus", "--pin"),
    ("engine", "--engine"),
    ("limits.head_bytes", "--head-bytes"),
    ("rate", "--rate"),
    ("requests", "--requests"),
    ("requests_per_connection", "--keep-alive"),
    ("sources", "--source"),
    ("threads", "--threads"),
    ("timeout", "--timeout"),
    ("url", "URL"),
    ("workers", "--workers"),
]);

impl Flags {
    /// The flag of a field; the field itself if the command cannot set it.
    pub(crate) fn flag<'a>(&self, field: &'a str) -> &'a str {
        let row = self.0.iter().find(|(known, _)| *known == field);
        row.map_or(field, |(_, flag)| flag)
    }

    /// A text of the library. Each field in backticks becomes its flag.
    pub(crate) fn translate(&self, text: &str) -> String {
        let rows = self.0.iter();
        rows.fold(text.to_owned(), |text, (field, flag)| {
            text.replace(&format!("`{field}`"), flag)
        })
    }

    /// The text of an error that begins with a field and ends with the reason. The value between
    /// them stays as the user wrote it.
    fn invalid(&self, text: &str, field: &str, why: &str) -> String {
        let value = text.strip_suffix(why);
        let value = value.and_then(|text| text.strip_prefix(field));
        let flag = self.flag(field);
        value.map_or(text.to_owned(), |value| {
            format!("{flag}{value}{}", self.translate(why))
        })
    }
}

/// The text of an error, with flags instead of fields.
pub(super) fn text_of(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    match cause.downcast_ref() {
        Some(mpps_io::Error::Invalid { field, why, .. }) => return IO.invalid(&text, field, why),
        Some(mpps_io::Error::Unsupported { field, .. }) => {
            let subject = text.strip_suffix(field);
            return subject.map_or(text.clone(), |subject| subject.to_owned() + IO.flag(field));
        }
        _ => {}
    }
    match cause.downcast_ref() {
        Some(mpps_http::HttpError::Invalid { field, why, .. }) => HTTP.invalid(&text, field, why),
        Some(mpps_http::HttpError::Unavailable { .. }) => HTTP.translate(&text),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::help;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Fields that no flag sets.
    const LIBRARY_ONLY: &[&str] = &[
        "answers",
        "ring.destinations",
        "ring.forward_to",
        "ring.sockets",
        "details.source",
        "details.local",
        "details.traffic_class",
        "details.hop_limit",
        "details.time",
        "details.hardware_time",
        "details.hash",
        "details.vlan",
        "errors",
        "groups.source",
        "transmit_clock",
    ];

    /// Modules of `mpps-host` with remedies: commands that a user pastes.
    const REMEDIES: &[&str] = &["check", "preflight", "receive_path", "tune"];

    fn word(flag: &str) -> &str {
        flag.split(' ').next().unwrap_or(flag)
    }

    /// The flags of these commands.
    fn flags_of(commands: &[&str]) -> Vec<String> {
        let all = help::command();
        let commands = commands.iter().map(|name| all.find_subcommand(name));
        let arguments = commands.flat_map(|command| command.expect("a command").get_arguments());
        let flags = arguments.filter_map(|one| Some(format!("--{}", one.get_long()?)));
        flags.collect()
    }

    #[test]
    fn every_field_of_a_backend_has_a_flag() {
        let flags = flags_of(&["recv", "send"]);
        for backend in mpps_io::BACKENDS {
            let fields = backend.rx_fields.iter().chain(backend.tx_fields);
            for field in fields.filter(|field| !LIBRARY_ONLY.contains(field)) {
                let flag = IO.flag(field);
                assert!(flags.iter().any(|one| one == flag), "{field}: {flag}");
            }
        }
        for (field, flag) in IO.0 {
            assert!(flags.iter().any(|one| one == word(flag)), "{field}: {flag}");
        }
    }

    #[test]
    fn every_field_of_a_server_or_load_has_a_flag() {
        let flags = flags_of(&["serve", "load"]);
        for (field, flag) in HTTP.0.iter().filter(|(_, flag)| *flag != "URL") {
            assert!(flags.iter().any(|one| one == flag), "{field}: {flag}");
        }
    }

    #[test]
    fn an_error_names_the_flag_of_a_field() {
        let config = mpps_io::RxConfig {
            batch: 0,
            ..mpps_io::RxConfig::new(([127, 0, 0, 1], 0).into())
        };
        let memory = mpps_io::backend::find("memory").unwrap();
        let error = memory.open_rx(&config).unwrap_err();
        assert!(text_of(&error).starts_with("--batch 0: "), "{error}");
        let error = mpps_io::Error::Unsupported {
            backend: "recvmmsg",
            field: "ring.queue",
        };
        let text = "backend recvmmsg does not support --queue";
        assert_eq!(text_of(&error), text);
        let error = mpps_io::Error::Invalid {
            field: "flows",
            value: "`flows`".to_owned(),
            why: "too many flows; lower `flows`".to_owned(),
        };
        let text = "--flows `flows`: too many flows; lower --flows";
        assert_eq!(text_of(&error), text);
        let error = mpps_io::backend::find("batch").unwrap_err();
        assert_eq!(text_of(&error), error.to_string());
        let error = mpps_http::Url::parse("ftp://x").unwrap_err();
        assert!(text_of(&error).starts_with("URL ftp://x: "), "{error}");
    }

    #[test]
    fn the_libraries_name_no_flag() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let rows = IO.0.iter().chain(HTTP.0);
        let flags: Vec<&str> = rows.map(|(_, flag)| word(flag)).collect();
        let mut files = Vec::new();
        for library in ["host", "http", "io", "lab", "os"] {
            sources(&crates.join(library).join("src"), &mut files);
        }
        assert!(files.len() > 100, "{} files", files.len());
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().map(str::trim_start);
            for line in lines.filter(|line| !line.starts_with("//")) {
                let named = flags.iter().find(|flag| names(line, flag));
                assert_eq!(named, None, "{}: {line}", file.display());
            }
        }
    }

    /// The source files below a folder, without tests and remedies.
    fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let is_remedy = folder.components().any(|part| part.as_os_str() == "host")
                && REMEDIES.contains(&&*stem);
            match () {
                () if stem == "tests" || is_remedy => {}
                () if path.is_dir() => sources(&path, files),
                () if path.extension().is_some_and(|kind| kind == "rs") => files.push(path),
                () => {}
            }
        }
    }

    /// True if a line has the flag as a whole word.
    fn names(line: &str, flag: &str) -> bool {
        let is_part = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
        let mut found = line.match_indices(flag);
        found.any(|(at, _)| !is_part(&line[at + flag.len()..]))
    }
}
