//! No global or thread-local variable holds the running fiber.
//!
//! Only four places have statics: the registry of stacks (`stack/overflow`), the hooks of a runtime
//! (`hook.rs`), the macro that makes a word of a thread (`arch/thread_word.rs`), and the count of
//! started fibers (`census.rs`).

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
fn statics_stand_only_in_four_places() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20);
    for file in files {
        let inside = file.strip_prefix(&root).unwrap();
        let allowed = ["stack/overflow", "hook.rs", "arch/thread_word.rs", "census.rs"];
        if allowed.iter().any(|place| inside.starts_with(place)) {
            continue;
        }
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let line = line.trim_start();
            let declares = line.starts_with("static ")
                || line.starts_with("pub static ")
                || line.starts_with("pub(crate) static ")
                || line.contains("thread_local!")
                || line.contains("thread_word!");
            let comment = line.starts_with("//");
            assert!(!declares || comment, "{}:{}: {line}", inside.display(), number + 1);
        }
    }
}
