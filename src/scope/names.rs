//! Enums by the names that the store keeps: one table of names per enum, read in both directions.

/// The name of a value, where the table has it.
pub(super) fn name_in<T: Copy + PartialEq>(
    names: &[(T, &'static str)],
    of: T,
) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == of).map(|(_, name)| *name)
}

/// The value of a name, where the table has it.
pub(super) fn named_in<T: Copy>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    names.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}
