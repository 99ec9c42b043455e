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
    match seen(pid) {
        Seen::Started(now) => Some(now != then),
        Seen::Ended => Some(true),
        Seen::Hidden => None,
    }
}

/// What this process sees of another one.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// When it was started, in ticks of this boot.
    Started(String),
    /// There is none, or it has ended and only waits for its parent.
    Ended,
    /// There is one, and no more is shown of it, as under `ProtectProc=invisible`.
    Hidden,
}

fn seen(pid: u32) -> Seen {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return not_shown(pid);
    };
    // Behind its name, which may hold anything: the state, and the 22nd field of the line.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    match (fields.next(), fields.nth(18)) {
        (Some("Z" | "X"), _) => Seen::Ended,
        (_, Some(started)) => Seen::Started(started.to_owned()),
        _ => Seen::Hidden,
    }
}

/// The same of one that `/proc` does not show: the system says whether it could be sent a signal.
fn not_shown(pid: u32) -> Seen {
    let number = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    match number.map(rustix::process::test_kill_process) {
        Some(Err(rustix::io::Errno::SRCH)) => Seen::Ended,
        _ => Seen::Hidden,
    }
}

fn started(pid: u32) -> Option<String> {
    match seen(pid) {
        Seen::Started(started) => Some(started),
        Seen::Ended | Seen::Hidden => None,
    }
}

/// The namespace of this process's numbers. None where `/proc` is that of another one, in which other processes have
/// these numbers: as in a container that sees the machine's.
fn namespace() -> Option<String> {
    let itself = std::fs::read_link("/proc/self").ok()?;
    if itself.to_str()? != std::process::id().to_string() {
        return None;
    }
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

    #[test]
    fn a_process_that_is_not_shown_has_not_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let shown = seen(child.id());
        let hidden = not_shown(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(shown, Seen::Started(_)), "{shown:?}");
        assert_eq!(hidden, Seen::Hidden);
        assert_eq!((not_shown(child.id()), seen(child.id())), (Seen::Ended, Seen::Ended));
        assert_eq!(not_shown(0), Seen::Hidden, "a number that no process has");
    }
}
