//! The table that people read.

use crate::process::Taken;

/// The rows of one question; the first one is what the others are compared with.
pub(crate) struct Table {
    first: Option<f64>,
}

impl Table {
    /// Prints the head.
    pub(crate) fn new(title: &str) -> Table {
        println!("{title}");
        println!(
            "{:<58} {:>8} {:>8} {:>8} {:>10} {:>6}",
            "", "wall s", "CPU s", "peak MB", "rows/s", "ratio"
        );
        Table { first: None }
    }

    /// Prints a row; `rows` is what it brought, 0 where rows are not what it is about.
    pub(crate) fn row(&mut self, what: &str, taken: &Taken, rows: usize) {
        let wall = taken.wall.as_secs_f64();
        let first = *self.first.get_or_insert(wall);
        let speed = if rows == 0 { String::new() } else { format!("{:.0}", rows as f64 / wall) };
        println!(
            "{what:<58} {wall:>8.2} {:>8.2} {:>8.0} {speed:>10} {:>6.2}",
            taken.cpu,
            taken.peak,
            wall / first,
        );
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        println!();
    }
}
