//! Who hands out memory, and when what is freed goes back to the system.

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

// In the library, so that the program, the tests and the benches have the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `MIMALLOC_PURGE_DELAY`: milliseconds that a freed page is kept. The allocator's own are 10.
const PURGE_DELAY: mi_option_t = 15;

/// `MIMALLOC_PURGE_EXTEND_DELAY`: milliseconds that a further freed page near it makes that longer. The allocator's own
/// is 1: where much is freed, as by a checkpoint of many small tables, nothing goes back before all of it is.
const PURGE_EXTEND_DELAY: mi_option_t = 25;

/// What they become: less costs time where much is loaded, more memory where little is (`docs/performance.md`).
const GIVE_BACK: [(mi_option_t, c_long); 2] = [(PURGE_DELAY, 2), (PURGE_EXTEND_DELAY, 0)];

/// Lets freed memory go back to the system soon. What the environment says of it (`MIMALLOC_…`) stands.
///
/// To be called before the first thread is started.
#[expect(
    unsafe_code,
    reason = "the allocator's crate has no safe way to its options, and they cannot be chosen when it is built"
)]
pub fn give_back_soon() {
    for (option, value) in GIVE_BACK {
        // SAFETY: it writes an integer of a table of the allocator's, for any number of an option. It is not safe beside
        // other threads, and there are none yet.
        unsafe { mi_option_set_default(option, value) };
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use libmimalloc_sys::mi_option_get;

    use super::*;

    /// The options have numbers here and names in the environment: each is asked for in a process that was given another
    /// value by name.
    #[test]
    fn the_numbers_are_those_of_the_options_and_the_environment_has_the_last_word() {
        const ALONE: &str = "CASEMIRROR_TEST_ALLOCATOR";
        let values = || GIVE_BACK.map(|(option, _)| read(option));
        match env::var(ALONE).as_deref() {
            Ok("named") => {
                assert_eq!(values(), [7, 8]);
                give_back_soon();
                assert_eq!(values(), [7, 8]);
            }
            Ok(_) => {
                assert_eq!(values(), [10, 1], "the allocator's own values are others now");
                give_back_soon();
                assert_eq!(values(), [2, 0]);
            }
            Err(_) => {
                let test = "memory::tests::the_numbers_are_those_of_the_options_and_the_environment_has_the_last_word";
                let alone = |how: &str, names: &[(&str, &str)]| {
                    let mut child = Command::new(env::current_exe().unwrap());
                    child.args(["--exact", test]).env(ALONE, how);
                    child
                        .env_remove("MIMALLOC_PURGE_DELAY")
                        .env_remove("MIMALLOC_PURGE_EXTEND_DELAY");
                    let output = child.envs(names.iter().copied()).output().unwrap();
                    let told = String::from_utf8_lossy(&output.stdout);
                    assert!(output.status.success() && told.contains("1 passed"), "{how}: {told}");
                };
                alone(
                    "named",
                    &[("MIMALLOC_PURGE_DELAY", "7"), ("MIMALLOC_PURGE_EXTEND_DELAY", "8")],
                );
                alone("by itself", &[]);
            }
        }
    }

    #[expect(unsafe_code, reason = "see `give_back_soon`")]
    fn read(option: mi_option_t) -> c_long {
        // SAFETY: it reads an integer of a table, and the process has one test.
        unsafe { mi_option_get(option) }
    }
}
