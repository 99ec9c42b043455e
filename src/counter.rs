//! Change counters: how often a table, or a month of it, was changed, and which change the last one was (pure).
//!
//! A store that is put back to an earlier state (a machine's snapshot, a copy of the file) counts on from there, and
//! comes to a number that it had before with other rows. Whoever holds counters against each other would take the rows of
//! the time that is gone for those of now. So only the upper bits count; the lower ones are drawn anew at every change.

use jiff::Timestamp;

/// Bits that do not count.
const DRAWN_BITS: u32 = 24;

/// SQL for the counter that follows `counter`, which is SQL too: larger, by one change.
pub(crate) fn next(counter: &str) -> String {
    format!("((({counter} >> {DRAWN_BITS}) + 1) << {DRAWN_BITS}) + {}", drawn())
}

/// SQL for how many changes `counter` counts, which is SQL too.
pub(crate) fn count_in_sql(counter: &str) -> String {
    format!("({counter} >> {DRAWN_BITS})")
}

/// How many changes it counts.
pub(crate) fn count(counter: i64) -> i64 {
    counter >> DRAWN_BITS
}

/// A machine that is put back with its memory draws the same random numbers once more, at another time.
fn drawn() -> i64 {
    let time = Timestamp::now().as_microsecond();
    (i64::from(rand::random::<u32>()) ^ time) & ((1 << DRAWN_BITS) - 1)
}

/// The counter of so many changes.
#[cfg(test)]
pub(crate) fn of(count: i64) -> i64 {
    count << DRAWN_BITS
}

#[cfg(test)]
mod tests {
    use duckdb::Connection;

    use super::*;

    #[test]
    fn a_counter_grows_by_one_change_and_comes_to_no_number_twice() {
        let conn = Connection::open_in_memory().unwrap();
        let next = |counter: i64| -> i64 {
            let sql = format!("SELECT {}", next(&format!("{counter}::BIGINT")));
            conn.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        // Earlier versions counted without such bits, and a copy counts on from far above.
        for counter in [0, 17, of(1), of(1) + 5, (1 << 40) + 17] {
            let following = next(counter);
            assert!(following > counter && count(following) == count(counter) + 1, "{following}");
        }
        let times: std::collections::BTreeSet<i64> = (0..20).map(|_| next(of(7))).collect();
        assert!(times.len() > 15, "{times:?}");
        assert!(
            next((1 << 52) + 3) < 1 << 53,
            "a program that reads manifests may count in floats"
        );
    }
}
