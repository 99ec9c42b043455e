//! One table: what a mirror costs, and what others take for the same pages.
//!
//! ```text
//! cargo bench --bench comparison
//! cargo bench --bench comparison -- --cases 10000 --lines 100000 --large 100000
//! cargo bench --bench comparison -- --only cases      or journals, small, large, lake
//! ```
//!
//! Pages are made once, before anything is measured, and served over HTTP on loopback by a process of
//! its own. Every row is a process of its own too, one after the other: the program as it is released,
//! a Python script with an HTTP client and `read_json`, dlt's REST source, DuckDB's `read_json` over
//! local files. The Python packages are installed into a folder of their own the first time.

#[path = "../machine.rs"]
mod machine;
#[path = "../process.rs"]
mod process;

mod cases;
mod journals;
mod lake;
mod large;
mod mirror;
mod pages;
mod small;
mod table;

use std::path::Path;

/// Sizes without options.
const CASES: usize = 100_000;
const LINES: usize = 1_000_000;
const LARGE: usize = 1_000_000;
const LAKE: usize = 1_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| {
        args.iter().position(|a| a == name).and_then(|at| args.get(at + 1)).map(String::as_str)
    };
    // Without `--bench` it is only tried whether it works.
    let usual = |size: usize| if args.iter().any(|a| a == "--bench") { size } else { size / 500 };
    let size = |name: &str, otherwise: usize| text(name).map_or(usual(otherwise), number);
    if let Some(part) = text("--part") {
        let folder = Path::new(text("--folder").expect("a part is told its folder"));
        return match part {
            "serve" => {
                pages::serve(number(text("--cases").expect("how many cases")), text("--lines"))
            }
            "grow" => large::grow(folder, number(text("--cases").expect("how many cases"))),
            "open" => large::open(folder),
            "change" => lake::change(folder, number(text("--cases").expect("how many cases"))),
            _ => panic!("there is no part {part}"),
        };
    }
    let wanted = |name: &str| text("--only").is_none_or(|only| only.split(',').any(|o| o == name));
    println!("{}\n", machine::described());
    if wanted("cases") {
        cases::compare(size("--cases", CASES));
    }
    if wanted("journals") {
        journals::compare(size("--lines", LINES));
    }
    if wanted("small") {
        small::compare();
    }
    if wanted("large") {
        large::compare(size("--large", LARGE));
    }
    if wanted("lake") {
        lake::compare(size("--lake", LAKE));
    }
}

fn number(text: &str) -> usize {
    text.replace(['_', ','], "").parse().expect("a size is a number")
}
