//! Enums by the names that the store keeps: one table of names per enum, read in both directions.

/// The name of a value; `""` where its enum's table lacks it, which the tests of each table rule out.
pub(super) fn name_in<T: Copy + PartialEq>(names: &[(T, &'static str)], of: T) -> &'static str {
    names.iter().find(|(known, _)| *known == of).map_or("", |(_, name)| name)
}

/// The value of that name.
pub(super) fn named_in<T: Copy>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    names.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}

/// Asserts that every value has a name of its own and is read back from it.
#[cfg(test)]
pub(super) fn are_of_their_own<T: Copy + PartialEq + std::fmt::Debug>(names: &[(T, &'static str)]) {
    let mut met = std::collections::BTreeSet::new();
    for (value, name) in names {
        assert_eq!(name_in(names, *value), *name);
        assert_eq!(named_in(names, name), Some(*value));
        assert!(!name.is_empty() && met.insert(*name), "{name} stands for two");
    }
    assert_eq!(named_in(names, "?"), None);
}
