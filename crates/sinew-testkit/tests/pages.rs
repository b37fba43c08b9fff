//! Checks that every path and link in the pages of this repository exists.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Collects the Markdown pages of a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The targets of `[text](target)`, outside of code blocks.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let mut rest = line;
        while let (false, Some(start)) = (in_code, rest.find("](")) {
            rest = &rest[start + 2..];
            // Rust items may end in parentheses of their own.
            let end = if rest.contains("())") {
                rest.find("))").map(|end| end + 1)
            } else {
                rest.find(')')
            };
            let Some(end) = end else { break };
            found.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
    found
}

/// The words in backticks that look like a path of this repository.
fn paths(text: &str) -> Vec<String> {
    const FOLDERS: [&str; 8] =
        ["crates/", "docs/", "ci/", ".ci/", "bench/", "tools/", "tests/", "src/"];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
        .filter(|word| !word.contains(['*', ' ', '{', '<']))
        .map(|word| word.trim_end_matches('/').to_owned())
        .collect()
}

/// The anchor that GitHub makes for a heading.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_and_path_exists() {
    let root = root();
    let mut found = Vec::new();
    pages(&root, &mut found);
    assert!(found.len() >= 8, "{found:?}");
    let mut missing = Vec::new();
    for page in &found {
        let text = std::fs::read_to_string(page).unwrap();
        let folder = page.parent().unwrap();
        for link in links(&text) {
            // Skip other sites, and items that rustdoc checks.
            if link.contains("://") || link.contains("::") || link.ends_with("()") {
                continue;
            }
            let (path, wanted) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { folder.join(path) };
            let Ok(content) = std::fs::read_to_string(&target) else {
                if !target.exists() {
                    missing.push(format!("{}: {link}", page.display()));
                }
                continue;
            };
            let headings = content.lines().filter(|line| line.starts_with('#')).map(anchor);
            if !wanted.is_empty() && !headings.collect::<Vec<_>>().contains(&wanted.to_owned()) {
                missing.push(format!("{}: {link} (no such heading)", page.display()));
            }
        }
        for path in paths(&text) {
            // A page inside a crate names paths of its crate. Other pages name paths of the
            // repository.
            let mut folders = folder.ancestors().take_while(|ancestor| ancestor.starts_with(&root));
            if !folders.any(|ancestor| ancestor.join(&path).exists()) {
                missing.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn pages_in_comments_exist() {
    let root = root();
    let mut missing = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("bench/src"), root.join("ci")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let comments = text.lines().filter(|line| {
                let line = line.trim_start();
                line.starts_with("//") || line.starts_with('#')
            });
            for comment in comments {
                for named in paths(comment) {
                    let near = path.ancestors().take_while(|ancestor| ancestor.starts_with(&root));
                    if !near.skip(1).any(|ancestor| ancestor.join(&named).exists()) {
                        missing.push(format!("{}: {named}", path.display()));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
