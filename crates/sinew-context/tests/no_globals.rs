//! The crate keeps no state about fibers in global or thread-local variables.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn statics_stand_only_in_overflow_and_hook() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20);
    for file in files {
        let inside = file.strip_prefix(&root).unwrap();
        if inside.starts_with("stack/overflow") || inside == Path::new("hook.rs") {
            continue;
        }
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let line = line.trim_start();
            let declares = line.starts_with("static ")
                || line.starts_with("pub static ")
                || line.starts_with("pub(crate) static ")
                || line.contains("thread_local!");
            let comment = line.starts_with("//");
            assert!(!declares || comment, "{}:{}: {line}", inside.display(), number + 1);
        }
    }
}
