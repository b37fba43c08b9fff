//! The graph of modules: arrows point one way, in the order that ARCHITECTURE.md gives.
//!
//! An arrow leads from one module to another if the code of the first contains a path that begins
//! at the crate's root and goes into the second. Tests, models and comments do not count. A module
//! may use the modules before it in the order. Modules in braces stand side by side and do not use
//! each other; modules in parentheses are one subject, and may.
//!
//! `ci/modules.sh --draw` writes `docs/modules.md`, which shows the graph.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const CRATES: [&str; 3] = ["sinew-context", "sinew", "sinew-http"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The order of a crate's modules, as ARCHITECTURE.md gives it.
struct Order(Vec<(String, Layer)>);

/// The place of a module: the number of its layer, and whether the modules of the layer may use
/// each other.
#[derive(Clone, Copy, PartialEq)]
struct Layer {
    number: usize,
    is_one_subject: bool,
}

impl Order {
    /// Reads the block that follows the comment `<!-- modules of CRATE -->`.
    fn read(page: &str, name: &str) -> Order {
        let mark = format!("<!-- modules of {name} -->");
        let block = page.split(&mark).nth(1).unwrap_or_else(|| panic!("the page has no {mark}"));
        let block = block.split("```").nth(1).expect("a block follows the mark");
        let block = block.trim_start_matches("text");
        let mut modules = Vec::new();
        for (number, layer) in block.split("<-").enumerate() {
            let layer = layer.trim();
            let is_one_subject = layer.starts_with('(');
            let names = layer.trim_matches(['(', ')', '{', '}']).split(',');
            modules.extend(
                names.map(|name| (name.trim().to_owned(), Layer { number, is_one_subject })),
            );
        }
        Order(modules)
    }

    fn layer(&self, module: &str) -> Option<Layer> {
        self.0.iter().find(|(name, _)| name == module).map(|(_, layer)| *layer)
    }

    fn allows(&self, from: &str, to: &str) -> bool {
        let (Some(from), Some(to)) = (self.layer(from), self.layer(to)) else { return false };
        to.number < from.number || (to == from && to.is_one_subject)
    }
}

/// Replaces comments and the contents of literals by spaces, and keeps the line breaks.
fn without_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    // The end of a literal or comment that begins at `at`, if one does.
    let end_of = |at: usize| -> Option<usize> {
        let rest = &text[at..];
        let find = |pattern: &str, from: usize| {
            rest[from..].find(pattern).map_or(rest.len(), |found| from + found + pattern.len())
        };
        if rest.starts_with("//") {
            return Some(at + rest.find('\n').unwrap_or(rest.len()));
        }
        if rest.starts_with("/*") {
            return Some(at + find("*/", 2));
        }
        if let Some(hashes) =
            rest.strip_prefix('r').map(|raw| raw.len() - raw.trim_start_matches('#').len())
            && rest[1 + hashes..].starts_with('"')
            && !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            let close = format!("\"{}", "#".repeat(hashes));
            return Some(at + find(&close, 2 + hashes));
        }
        if rest.starts_with('"') {
            let mut escaped = false;
            let close = rest.char_indices().skip(1).find(|(_, c)| {
                let closes = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                closes
            });
            return Some(at + close.map_or(rest.len(), |(close, _)| close + 1));
        }
        // A character, not a lifetime.
        let mut chars = rest.chars();
        if chars.next() == Some('\'') {
            let second = chars.next()?;
            if second == '\\' {
                return Some(at + find("'", 3));
            }
            if chars.next() == Some('\'') {
                return Some(at + 2 + second.len_utf8());
            }
        }
        None
    };
    while at < bytes.len() {
        match text.is_char_boundary(at).then(|| end_of(at)).flatten() {
            Some(end) => {
                out.extend(bytes[at..end].iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
                at = end;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Removes the module that follows each `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn without_tests(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) =
        ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| rest.find(mark)).min()
    {
        out.push_str(&rest[..start]);
        let item = &rest[start..];
        let body = item.find(['{', ';']).unwrap_or(item.len());
        let mut depth = 0;
        let end = item[body..].char_indices().find(|(_, c)| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0 && matches!(c, '}' | ';')
        });
        rest = &item[end.map_or(item.len(), |(end, _)| body + end + 1)..];
    }
    out + rest
}

/// The source files of a folder, without tests and models.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["tests", "loom", "model", "models", "fuzzing"].contains(&&*stem) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names that begin the paths after `prefix` in a text, with their offsets.
fn names_after(text: &str, prefix: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || "_$:".contains(c)) {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let name = |text: &str| -> String {
            text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            None => found.push((at, name(rest))),
            // A group of imports: the names at its first level.
            Some(group) => {
                let mut depth = 0;
                let mut begins = true;
                for (offset, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        c if begins && !c.is_whitespace() => {
                            found.push((at, name(&group[offset..])));
                            begins = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found
}

/// The arrows of a crate: from which module to which, and where.
type Graph = BTreeMap<(String, String), Vec<String>>;

fn graph(name: &str) -> (BTreeSet<String>, Graph) {
    let src = root().join("crates").join(name).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    files.sort();
    let module_of = |path: &Path| {
        let first = path.strip_prefix(&src).unwrap().components().next().unwrap();
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let modules: BTreeSet<String> =
        files.iter().map(|path| module_of(path)).filter(|module| module != "lib").collect();
    // The items that the root has from its modules.
    let lib = without_comments(&std::fs::read_to_string(src.join("lib.rs")).unwrap());
    let mut items = BTreeMap::new();
    for prefix in ["pub use crate::", "pub use "] {
        for (at, _) in lib.match_indices(prefix) {
            let path = lib[at + prefix.len()..].split(';').next().unwrap();
            let module = path.split("::").next().unwrap().to_owned();
            for item in path.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
                items.entry(item.to_owned()).or_insert_with(|| module.clone());
            }
        }
    }
    let mut graph = Graph::new();
    for path in files.iter().filter(|path| module_of(path) != "lib") {
        let from = module_of(path);
        let text = without_tests(&without_comments(&std::fs::read_to_string(path).unwrap()));
        let mut uses = names_after(&text, "crate::");
        // In a module's own root file, `super` is the root of the crate.
        let is_root = path.parent() == Some(&src) || path.ends_with(format!("{from}/mod.rs"));
        if is_root {
            uses.extend(names_after(&text, "super::"));
        }
        for (at, name) in uses {
            let to = if modules.contains(&name) { Some(&name) } else { items.get(&name) };
            let Some(to) = to.filter(|to| modules.contains(*to) && **to != from) else { continue };
            let line = 1 + text[..at].matches('\n').count();
            let place = format!("{}:{line}", path.strip_prefix(root()).unwrap().display());
            graph.entry((from.clone(), to.clone())).or_default().push(place);
        }
    }
    (modules, graph)
}

fn page() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

#[test]
fn arrows_between_modules_point_one_way() {
    let page = page();
    let mut wrong = Vec::new();
    for name in CRATES {
        let order = Order::read(&page, name);
        let (modules, graph) = graph(name);
        for module in &modules {
            if order.layer(module).is_none() {
                wrong.push(format!("the order of {name} in ARCHITECTURE.md lacks `{module}`"));
            }
        }
        for (module, _) in &order.0 {
            if !modules.contains(module) {
                wrong.push(format!("the order of {name} has `{module}`, which does not exist"));
            }
        }
        for ((from, to), places) in &graph {
            if !order.allows(from, to) {
                wrong.push(format!("{name}: `{from}` uses `{to}`, against the order: {places:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Draws the graph: a row for each module, in the order of the page, and the modules that it uses.
fn drawing() -> String {
    let mut out = String::from(
        "# The graph of modules\n\n`ci/modules.sh --draw` writes this page from the source. Each \
         module uses only modules above it.\nARCHITECTURE.md says what each module is for.\n",
    );
    let page = page();
    for name in CRATES {
        let (_, graph) = graph(name);
        let order = Order::read(&page, name);
        let width = order.0.iter().map(|(module, _)| module.len()).max().unwrap_or(0);
        write!(out, "\n## {name}\n\n```text\n").unwrap();
        for (module, _) in &order.0 {
            let used: Vec<_> = order
                .0
                .iter()
                .map(|(other, _)| other)
                .filter(|other| graph.contains_key(&(module.clone(), (*other).clone())))
                .map(String::as_str)
                .collect();
            let row = format!("{module:width$} -> {}", used.join(" "));
            writeln!(out, "{}", row.trim_end_matches(" -> ").trim_end()).unwrap();
        }
        out.push_str("```\n");
    }
    out
}

#[test]
fn the_drawing_of_the_graph_is_up_to_date() {
    let path = root().join("docs/modules.md");
    let drawing = drawing();
    if std::env::var_os("SINEW_DRAW").is_some() {
        std::fs::write(&path, &drawing).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == drawing, "docs/modules.md is out of date; run ci/modules.sh --draw");
}

#[test]
fn arrows_are_found_in_code_only() {
    let text = "use crate::queue::Fifo; // crate::park\nuse crate::{fiber::Control, carrier};\n\
                fn f() { \"crate::sync\"; r#\"crate::io\"#; 'c'; $crate::net; crate::time::now() }\n\
                #[cfg(test)]\nmod tests { use crate::runtime; }\nuse crate::cancel;";
    let text = without_tests(&without_comments(text));
    let names: Vec<_> = names_after(&text, "crate::").into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["queue", "fiber", "carrier", "time", "cancel"]);
}
