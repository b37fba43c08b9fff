//! Chooses the content type of a file by its extension.

use http::HeaderValue;
use std::ffi::OsStr;
use std::path::Path;

/// The `content-type` of a file with this name.
pub(super) fn of(path: &Path) -> HeaderValue {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let found = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
    HeaderValue::from_static(found.map_or(UNKNOWN, |(_, content_type)| content_type))
}

/// The type of files with an unknown extension. Clients store such files rather than show them.
const UNKNOWN: &str = "application/octet-stream";

/// The types of files that browsers show or run, and of common downloads, from the IANA registry.
/// Text types declare UTF-8, because some clients would assume an older encoding.
const TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("text", "text/plain; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("toml", "text/plain; charset=utf-8"),
    ("rs", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("ics", "text/calendar; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("xml", "application/xml"),
    ("xhtml", "application/xhtml+xml"),
    ("atom", "application/atom+xml"),
    ("rss", "application/rss+xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("wasm", "application/wasm"),
    ("pdf", "application/pdf"),
    ("rtf", "application/rtf"),
    ("epub", "application/epub+zip"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tgz", "application/gzip"),
    ("bz2", "application/x-bzip2"),
    ("xz", "application/x-xz"),
    ("zst", "application/zstd"),
    ("tar", "application/x-tar"),
    ("7z", "application/x-7z-compressed"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("svg", "image/svg+xml"),
    ("ico", "image/vnd.microsoft.icon"),
    ("bmp", "image/bmp"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("apng", "image/apng"),
    ("mp3", "audio/mpeg"),
    ("m4a", "audio/mp4"),
    ("aac", "audio/aac"),
    ("ogg", "audio/ogg"),
    ("oga", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("mp4", "video/mp4"),
    ("m4v", "video/mp4"),
    ("webm", "video/webm"),
    ("ogv", "video/ogg"),
    ("mov", "video/quicktime"),
    ("mkv", "video/matroska"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_extension_counts_in_any_case() {
        for (name, content_type) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a/b.JS", "text/javascript; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("a.html.png", "image/png"),
            ("a", UNKNOWN),
            (".html", UNKNOWN),
            ("a.", UNKNOWN),
            ("html", UNKNOWN),
            ("a.html/b", UNKNOWN),
        ] {
            assert_eq!(of(Path::new(name)), content_type, "{name}");
        }
    }

    #[test]
    fn text_says_how_it_is_encoded() {
        for (extension, content_type) in TYPES {
            let is_text = content_type.starts_with("text/");
            assert_eq!(content_type.ends_with("; charset=utf-8"), is_text, "{extension}");
        }
    }

    #[test]
    fn no_extension_is_listed_twice() {
        for (index, (extension, _)) in TYPES.iter().enumerate() {
            let before = TYPES[..index].iter().find(|(known, _)| known == extension);
            assert_eq!(before, None, "{extension}");
        }
    }
}
