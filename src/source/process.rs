//! Which process this is, and whether another one still lives: the feed's ledger is shared by processes,
//! and one that was killed ends its calls no more.

/// The names of this process: its number, when it was started, and the namespace that both belong to.
/// Processes that are told apart are never taken for each other.
pub(crate) fn this() -> String {
    name_of(std::process::id())
}

/// The same of another process; empty where it cannot be seen.
pub(super) fn name_of(pid: u32) -> String {
    match (started(pid), namespace()) {
        (Some(started), Some(namespace)) => format!("{pid}/{started}/{namespace}"),
        _ => String::new(),
    }
}

/// Whether the process of that name has ended; `None` where that cannot be seen from here.
pub(crate) fn has_ended(name: &str) -> Option<bool> {
    let mut parts = name.split('/');
    let (pid, then, of) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    if namespace()? != of {
        return None;
    }
    Some(started(pid).as_deref() != Some(then))
}

/// When a process was started, in ticks of this boot; `None`: there is none, or it has ended and only
/// waits for its parent.
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind its name, which may hold anything: the state, and the 22nd field of the line.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let lives = !matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| lives).map(str::to_owned)
}

/// The namespace of this process's numbers.
fn namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let digits: String = link.to_str()?.chars().filter(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_lives_until_it_ends() {
        assert_eq!(has_ended(&this()), Some(false));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let name = name_of(child.id());
        assert_eq!(has_ended(&name), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(has_ended(&name), Some(true));
    }

    #[test]
    fn another_process_of_the_same_number_is_another_one() {
        let (pid, namespace) = (std::process::id(), namespace().unwrap());
        assert_eq!(has_ended(&format!("{pid}/1/{namespace}")), Some(true));
    }

    #[test]
    fn what_is_not_seen_from_here_is_not_judged() {
        assert_eq!(has_ended(""), None);
        assert_eq!(has_ended("1/1/elsewhere"), None);
        assert_eq!(has_ended("no number/1/1"), None);
    }
}
