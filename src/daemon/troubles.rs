//! What cycles leave undone, for the log: each thing is told when it begins, and when it is over (pure).

use std::collections::BTreeMap;

/// What stands, by what is said of it without its numbers: that a third scope fails is no news.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    standing: BTreeMap<String, String>,
}

/// What a cycle brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) begins: Vec<String>,
    pub(super) over: Vec<String>,
}

impl Troubles {
    /// These are there after a cycle. One that did not look at everything ends none.
    pub(super) fn are(&mut self, problems: &[String], looked_at_all: bool) -> News {
        let now: BTreeMap<String, String> =
            problems.iter().map(|problem| (gist(problem), problem.clone())).collect();
        let mut news = News::default();
        if looked_at_all {
            self.standing.retain(|gist, problem| {
                let stays = now.contains_key(gist);
                if !stays {
                    news.over.push(problem.clone());
                }
                stays
            });
        }
        for (gist, problem) in now {
            self.standing.entry(gist).or_insert_with(|| {
                news.begins.push(problem.clone());
                problem
            });
        }
        news
    }
}

/// The same for all numbers: ids, counts, months, times; and for one and many.
fn gist(problem: &str) -> String {
    let words = problem.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    words.map(|word| word.strip_suffix('s').unwrap_or(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are(troubles: &mut Troubles, problems: &[&str], all: bool) -> News {
        let problems: Vec<String> = problems.iter().map(|problem| (*problem).to_owned()).collect();
        troubles.are(&problems, all)
    }

    #[test]
    fn each_is_told_when_it_begins_and_when_it_is_over_whatever_its_numbers() {
        let mut troubles = Troubles::default();
        let one = "costs: 1 scope failed and will be tried again: 500";
        let two = "costs: 2 scopes failed and will be tried again: 503";
        assert_eq!(are(&mut troubles, &[one], true).begins, [one]);
        assert_eq!(are(&mut troubles, &[two], true), News::default());
        let notes = "notes is failing: no answer";
        let news = are(&mut troubles, &[two, notes], true);
        assert_eq!((news.begins, news.over), (vec![notes.to_owned()], Vec::new()));
        assert_eq!(are(&mut troubles, &[], false), News::default(), "it gave way to a command");
        let news = are(&mut troubles, &[notes], true);
        assert_eq!((news.begins, news.over), (Vec::new(), vec![one.to_owned()]));
        assert_eq!(are(&mut troubles, &[two, notes], true).begins, [two], "once more");
    }
}
