//! Build script: lists `schemas/*.toml`, so that adding a table is adding a file; and tells the linker how to lay out
//! the program.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let folder = Path::new(&root).join("schemas");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("schemas/ is readable")
        .map(|entry| entry.expect("schemas/ is readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    let mut list = String::from("[\n");
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let path = file.to_string_lossy().into_owned();
        writeln!(list, "({name:?}, include_str!({path:?})),").expect("a String takes all");
    }
    list.push(']');
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("schemas.rs"), list).expect("OUT_DIR is writable");
    lay_out();
}

/// Code that is seldom run lies together, not among the rest: with each page that is needed, those around it come into
/// memory, which is 10 MB more for every process otherwise. Linkers that do not know the option pass over it.
fn lay_out() {
    let target = |key| env::var(key).unwrap_or_default();
    if target("CARGO_CFG_TARGET_OS") == "linux" && target("CARGO_CFG_TARGET_ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    }
}
