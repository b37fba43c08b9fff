//! The runtimes of the process, with unique names.

use sinew::RuntimeHandle;
use sinew::inspect::Metrics;
use std::collections::HashMap;

/// A runtime and its metrics.
pub(super) struct Runtime {
    /// The name of the runtime. Further runtimes with an equal name get a number.
    pub(super) name: String,
    pub(super) metrics: Metrics,
}

/// All runtimes, the oldest first.
pub(super) fn all() -> Vec<Runtime> {
    let handles = sinew::runtime::all();
    let names = told_apart(handles.iter().map(RuntimeHandle::name));
    let both = handles.iter().zip(names);
    both.map(|(handle, name)| Runtime { name, metrics: handle.metrics() }).collect()
}

fn told_apart<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let name = |name: &'a str| {
        let count = seen.entry(name).or_default();
        *count += 1;
        if *count == 1 { name.to_owned() } else { format!("{name} ({count})") }
    };
    names.map(name).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn runtimes_of_one_name_are_told_apart() {
        let names = super::told_apart(["sinew", "http", "sinew", "sinew"].into_iter());
        assert_eq!(names, ["sinew", "http", "sinew (2)", "sinew (3)"]);
    }
}
