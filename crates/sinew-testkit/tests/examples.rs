//! Checks that every public function, type, alias, constant, trait and method of a public trait has
//! an example in its documentation.
//!
//! `cargo test --doc` runs the examples; this test finds missing ones. The compiler's own lint does
//! not look at items that are re-exported from private modules.
//!
//! The test reads the sources and takes `pub` as the sign of a public item. The lint
//! `unreachable_pub` keeps that right: an item that no other crate can reach is not `pub`.

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

/// The name that `line` declares, if it is a public item. `in_trait` says whether the
/// line is in the body of a public trait.
fn declared(line: &str, in_trait: bool) -> Option<&str> {
    let item = line.trim_start();
    let public = item.strip_prefix("pub ");
    let rest = public.or(in_trait.then_some(item))?;
    let rest = rest.trim_start_matches("const ").trim_start_matches("unsafe ");
    let function_or_constant = rest.strip_prefix("fn ").or(item.strip_prefix("pub const "));
    let name = match function_or_constant {
        Some(name) => name,
        // An indented type is in a module that seals a trait.
        None if line.starts_with("pub ") => {
            let kinds = ["struct ", "enum ", "trait ", "type "];
            kinds.iter().find_map(|kind| rest.strip_prefix(kind))?
        }
        None => return None,
    };
    Some(name.split(['(', '<', ' ', ';', ':']).next().unwrap_or(name))
}

/// Whether a line above an item is part of the item's doc comment or attributes. Attributes may
/// have several lines.
fn belongs_to_next(line: &str) -> bool {
    line.starts_with("///") || !(line.is_empty() || line.ends_with(['{', '}', ';']))
}

/// Whether a doc comment has a block of code that runs. `above` yields the lines from the last to
/// the first.
fn has_example<'a>(above: impl Iterator<Item = &'a str>) -> bool {
    let fences: Vec<&str> = above.filter_map(|line| line.trim().strip_prefix("/// ```")).collect();
    // Every other fence, from the first line on, begins a block.
    fences.iter().rev().step_by(2).any(|kind| !["compile_fail", "text"].contains(&first_word(kind)))
}

fn first_word(kind: &str) -> &str {
    kind.split([',', ' ']).next().unwrap_or(kind)
}

/// The names of public items in `text` without an example in their documentation.
fn without_example(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut missing = Vec::new();
    let mut in_trait = false;
    for (index, line) in lines.iter().enumerate() {
        if let Some(name) = declared(line, in_trait) {
            let above = lines[..index].iter().rev().map(|line| line.trim());
            let above = above.take_while(|line| belongs_to_next(line));
            let hidden = above.clone().any(|line| line.contains("doc(hidden)"));
            if !hidden && !has_example(above) {
                missing.push(name.to_owned());
            }
        }
        if line.starts_with("pub trait ") || line.starts_with("pub unsafe trait ") {
            in_trait = !line.ends_with('}');
        } else if *line == "}" {
            in_trait = false;
        }
    }
    missing
}

/// Fails if an item of the crate in `folder` needs an example and has none.
fn check(folder: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20, "the sources were not found");
    let missing: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let name = file.strip_prefix(&root).unwrap().display().to_string();
            without_example(&fs::read_to_string(file).unwrap())
                .into_iter()
                .map(move |item| format!("{name}: {item}"))
        })
        .collect();
    assert!(missing.is_empty(), "no example for\n{}", missing.join("\n"));
}

#[test]
fn every_public_item_has_an_example() {
    for name in ["sinew", "sinew-http", "sinew-context"] {
        check(name);
    }
}

#[test]
fn a_missing_example_is_found() {
    let text = "/// Does it.\npub fn bare() {}\n/// ```\n/// ok();\n/// ```\npub fn good() {}\n";
    assert_eq!(without_example(text), ["bare"]);
    let text = "/// Is it.\npub struct Bare;\n/// ```\n/// ok();\n/// ```\npub struct Good;\n";
    assert_eq!(without_example(text), ["Bare"]);
}

#[test]
fn a_missing_example_of_an_alias_or_a_constant_is_found() {
    let text =
        "pub type Bare = u8;\npub const MOST: u8 = 1;\n/// ```\n/// ```\npub type Good = u8;\n";
    assert_eq!(without_example(text), ["Bare", "MOST"]);
}

#[test]
fn a_missing_example_of_a_traits_method_is_found() {
    let text =
        "/// ```\n/// ```\npub unsafe trait Good {\n    fn bare(&self);\n}\nfn private() {}\n";
    assert_eq!(without_example(text), ["bare"]);
}

#[test]
fn code_that_must_not_compile_is_no_example() {
    let text = "/// ```compile_fail,E0277\n/// no();\n/// ```\npub fn bare() {}\n";
    assert_eq!(without_example(text), ["bare"]);
}
