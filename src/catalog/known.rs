//! The names that the built-in tables know: they are no person's, and may be shown in what a service says.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::Resource;
use super::load::built_in;

struct Known {
    /// Names of fields, as they are written.
    fields: HashSet<String>,
    /// Names of tables, fields, permissions and endpoints, in lower case.
    words: HashSet<String>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let resources = built_in();
    let fields: HashSet<String> = resources.iter().flat_map(fields_of).collect();
    // Fields are known as a whole alone: words within them, such as the one of a price per unit, are names, too.
    let words = resources.iter().flat_map(words_of).chain(fields.iter().cloned());
    Known { words: words.map(|word| word.to_lowercase()).collect(), fields }
});

fn fields_of(resource: &Resource) -> Vec<String> {
    let of_columns = resource.columns.iter().flat_map(|column| column.path.iter().cloned());
    of_columns.chain(resource.leave_out.iter().cloned()).collect()
}

fn words_of(resource: &Resource) -> Vec<String> {
    let paths = resource.read.iter().flat_map(|read| read.path.split('/'));
    let permissions = resource.permissions.iter().flat_map(|permission| permission.split(" - "));
    let words = paths.chain(permissions).chain([resource.table.as_str()]);
    words
        .filter(|word| word.chars().all(|c| c.is_alphanumeric() || c == '_') && !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Whether a table has a field of this name.
pub(crate) fn is_known_field(name: &str) -> bool {
    KNOWN.fields.contains(name)
}

/// Whether a table, a field, a permission or a part of an endpoint has this name, in capitals or not.
pub(crate) fn is_known_name(word: &str) -> bool {
    KNOWN.words.contains(&word.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_platform_are_known_and_no_others() {
        for word in
            ["Cases", "case_roles", "RevenueJournals", "BookkeepingIntegrators", "CASEID", "Read"]
        {
            assert!(is_known_name(word), "{word}");
        }
        for word in ["Ola", "Nordmann", "Per", "Kari", "Even", ""] {
            assert!(!is_known_name(word), "{word}");
        }
        assert!(is_known_field("CaseId") && !is_known_field("caseid"));
    }
}
