//! Finds the peers that are not Rust crates. One that is missing is left out, and the program says
//! so and how to get it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=cpp");
    // Boost.Context's assembly, by its C symbols.
    let context = "extern void jump_fcontext(void); int main(int n, char **v) \
                   { if (n > 1000) jump_fcontext(); return v == 0; }";
    let fiber = "#include <boost/fiber/all.hpp>\n\
                 int main() { boost::fibers::fiber([] {}).join(); }";
    let has_context = links("cc", "context.c", context, &["boost_context"]);
    let has_fiber =
        has_context && links("c++", "fiber.cc", fiber, &["boost_fiber", "boost_context"]);
    if has_fiber {
        boost_fiber();
    }
    if has_context {
        println!("cargo::rustc-link-lib=boost_context");
        println!("cargo::rustc-cfg=has_fcontext");
    }
}

/// Boost.Fiber, through the functions in `cpp`.
fn boost_fiber() {
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .define("NDEBUG", None)
        // What a program is built with, rather than a shared library that is to be debugged.
        .pic(false)
        .flag("-fPIE")
        .force_frame_pointer(false)
        .file("cpp/manager.cc")
        .compile("sinew_bench_cpp");
    // Calls to a shared library, and its thread-locals, would take up to a third of the time.
    match archive("libboost_fiber.a") {
        Some(directory) => {
            println!("cargo::rustc-link-search=native={}", directory.display());
            println!("cargo::rustc-link-lib=static:-bundle=boost_fiber");
        }
        None => println!("cargo::rustc-link-lib=boost_fiber"),
    }
    println!("cargo::rustc-cfg=has_boost_fiber");
    println!("cargo::rustc-env=BOOST_VERSION={}", boost_version().unwrap_or_default());
}

/// For instance `1.74`, as the header has it.
fn boost_version() -> Option<String> {
    let source = source("version.cc", "#include <boost/version.hpp>\nBOOST_LIB_VERSION")?;
    let output = Command::new("c++").args(["-E", "-P"]).arg(source).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().last()?.trim_matches('"').replace('_', "."))
}

/// Where the compiler finds a static library.
fn archive(name: &str) -> Option<PathBuf> {
    let output = Command::new("c++").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    // If there is none, the compiler prints the bare name.
    let directory = Path::new(path.trim()).parent()?.canonicalize().ok()?;
    (!directory.as_os_str().is_empty() && directory.join(name).exists()).then_some(directory)
}

fn links(compiler: &str, file: &str, program: &str, libraries: &[&str]) -> bool {
    let Some(source) = source(file, program) else { return false };
    let status = Command::new(compiler)
        .arg(&source)
        .arg("-o")
        .arg(source.with_extension("probe"))
        .args(libraries.iter().map(|library| format!("-l{library}")))
        .output();
    status.is_ok_and(|output| output.status.success())
}

/// A file with a program for a compiler.
fn source(file: &str, program: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join(file);
    std::fs::write(&path, program).ok().map(|()| path)
}
