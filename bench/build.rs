//! Finds the peers that are not Rust crates. A missing peer is left out, and the program says how
//! to install it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=cpp");
    // The C symbols of Boost.Context's assembly.
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

/// Builds Boost.Fiber's contenders, the functions in `cpp`.
fn boost_fiber() {
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .define("NDEBUG", None)
        // The flags of an ordinary program: position independent as an executable, without frame
        // pointers.
        .pic(false)
        .flag("-fPIE")
        .force_frame_pointer(false)
        .file("cpp/manager.cc")
        .compile("sinew_bench_cpp");
    // Calls into a shared library, and its thread-locals, would take up to a third of the time.
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

/// Returns the version of Boost, for instance `1.74`, from its header.
fn boost_version() -> Option<String> {
    let source = source("version.cc", "#include <boost/version.hpp>\nBOOST_LIB_VERSION")?;
    let output = Command::new("c++").args(["-E", "-P"]).arg(source).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().last()?.trim_matches('"').replace('_', "."))
}

/// Returns the directory in which the compiler finds a static library.
fn archive(name: &str) -> Option<PathBuf> {
    let output = Command::new("c++").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    // The compiler prints the bare name if there is no such library.
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

/// Writes a program for a compiler to a file; returns its path.
fn source(file: &str, program: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join(file);
    std::fs::write(&path, program).ok().map(|()| path)
}
