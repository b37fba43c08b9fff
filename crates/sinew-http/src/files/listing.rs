//! Makes the page that lists a directory.

use super::path;
use core::fmt::Write;
use percent_encoding::percent_decode_str;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::io;
use std::os::fd::OwnedFd;

/// Makes a page that lists a directory, which was requested as `path`. Blocks.
pub(super) fn page(directory: OwnedFd, path: &str, is_root: bool) -> io::Result<String> {
    let title = escaped(&percent_decode_str(path).decode_utf8_lossy());
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    let _ = writeln!(page, "<title>{title}</title>\n<h1>{title}</h1>\n<ul>");
    if !is_root {
        page.push_str("<li><a href=\"../\">../</a>\n");
    }
    for entry in entries(directory)? {
        let slash = if entry.is_directory { "/" } else { "" };
        let reference = path::reference(&entry.name);
        let name = escaped(&String::from_utf8_lossy(&entry.name));
        let _ = writeln!(page, "<li><a href=\"{reference}{slash}\">{name}{slash}</a>");
    }
    page.push_str("</ul>\n</html>\n");
    Ok(page)
}

struct Listed {
    name: Vec<u8>,
    is_directory: bool,
}

/// The entries that can be requested: directories first, then by name.
///
/// Symbolic links are listed as files. A request for one finds out where it leads.
fn entries(directory: OwnedFd) -> io::Result<Vec<Listed>> {
    let mut entries = Vec::new();
    let mut listed = Dir::new(directory)?;
    while let Some(entry) = listed.read() {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not store the type in the directory.
            FileType::Unknown => match statat(listed.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) => FileType::from_raw_mode(status.st_mode),
                // The file was removed meanwhile.
                Err(_) => continue,
            },
            known => known,
        };
        let is_directory = kind == FileType::Directory;
        if is_directory || matches!(kind, FileType::RegularFile | FileType::Symlink) {
            entries.push(Listed { name: name.to_bytes().to_vec(), is_directory });
        }
    }
    entries.sort_unstable_by(|a, b| (!a.is_directory, &a.name).cmp(&(!b.is_directory, &b.name)));
    Ok(entries)
}

/// Escapes text for HTML, inside quotes or not.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_with_a_meaning_in_html_are_escaped() {
        assert_eq!(
            escaped("<a href=\"x\">'&amp;'</a>é"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;é"
        );
    }
}
