//! The media type of a file, by its extension.

/// Extensions in order, and their types as IANA has them; text is UTF-8.
///
/// A table, not a crate: a static site has these. For other files `application/octet-stream` is the
/// honest answer.
const TYPES: &[(&str, &str)] = &[
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("toml", "application/toml"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The most likely type of a file with this extension.
pub(crate) fn of_extension(extension: &str) -> &'static str {
    let extension = extension.to_ascii_lowercase();
    match TYPES.binary_search_by_key(&extension.as_str(), |&(extension, _)| extension) {
        Ok(index) => TYPES[index].1,
        Err(_) => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn case_does_not_matter_and_the_unknown_is_bytes() {
        assert_eq!(of_extension("HTML"), "text/html; charset=utf-8");
        assert_eq!(of_extension("zst"), "application/zstd");
        assert_eq!(of_extension("rs"), "application/octet-stream");
        assert_eq!(of_extension(""), "application/octet-stream");
    }
}
