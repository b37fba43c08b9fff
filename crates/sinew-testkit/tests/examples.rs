//! Checks that every public function of the runtime has an example in its documentation.
//!
//! `cargo test --doc` runs the examples; this test finds missing ones. The compiler's own lint does
//! not look at items that are re-exported from private modules.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// The names of public functions in `text` without code in their documentation.
fn without_example(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut missing = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix("pub ") else { continue };
        let rest = rest.trim_start_matches("const ").trim_start_matches("unsafe ");
        let Some(name) = rest.strip_prefix("fn ") else { continue };
        let above: Vec<&&str> = lines[..index]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("///") || line.starts_with("#["))
            .collect();
        let documented = above.iter().any(|line| line.starts_with("/// ```"));
        let hidden = above.iter().any(|line| line.contains("doc(hidden)"));
        if !documented && !hidden {
            missing.push(name.split(['(', '<']).next().unwrap_or(name).to_owned());
        }
    }
    missing
}

#[test]
fn every_public_function_has_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sinew/src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20, "the sources were not found");
    let missing: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let name = file.strip_prefix(&root).unwrap().display().to_string();
            without_example(&fs::read_to_string(file).unwrap())
                .into_iter()
                .map(move |function| format!("{name}: {function}"))
        })
        .collect();
    assert!(missing.is_empty(), "no example for\n{}", missing.join("\n"));
}

#[test]
fn a_missing_example_is_found() {
    let text = "/// Does it.\npub fn bare() {}\n/// ```\n/// ok();\n/// ```\npub fn good() {}\n";
    assert_eq!(without_example(text), ["bare"]);
}
