//! Finds the peers that are not Rust crates. One that is missing is left out, and the program says
//! so and how to get it.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Boost.Context's assembly, by its C symbols.
    let program = "extern void jump_fcontext(void); int main(int n, char **v) \
                   { if (n > 1000) jump_fcontext(); return v == 0; }";
    if links(program, "boost_context") {
        println!("cargo::rustc-link-lib=boost_context");
        println!("cargo::rustc-cfg=has_fcontext");
    }
}

fn links(program: &str, library: &str) -> bool {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let source = out.join("probe.c");
    if std::fs::write(&source, program).is_err() {
        return false;
    }
    let status = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(out.join("probe"))
        .arg(format!("-l{library}"))
        .output();
    status.is_ok_and(|output| output.status.success())
}
