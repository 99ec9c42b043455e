//! Privacy applied to JSON that is stored already, where a setting was tightened.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::canonical::{canonical, object};
use super::privacy::Privacy;
use crate::catalog::Class;

/// What is to be hidden in stored JSON: the fields of some columns, and, by their names, fields that no
/// column takes.
pub struct Classes<'a> {
    by_name: &'a Privacy,
    columns: Vec<(&'a [String], Privacy)>,
}

impl<'a> Classes<'a> {
    /// `by_name` hides what falls under a class by its name; a column's field is hidden by the privacy
    /// beside its path, which takes every text for an identifier.
    pub fn new(
        by_name: &'a Privacy,
        columns: impl Iterator<Item = (&'a [String], Privacy)>,
    ) -> Classes<'a> {
        Classes { by_name, columns: columns.collect() }
    }

    /// An object as it stands in `_extra`.
    pub fn object(&self, text: &str) -> String {
        self.fields(text, &[]).unwrap_or_else(|| text.to_owned())
    }

    /// A value of a column that has no class.
    pub fn value(&self, raw: &str) -> String {
        canonical(raw, self.by_name)
    }

    /// A value of a field that no column takes; `None` where it is dropped.
    pub fn field(&self, name: &str, raw: &str) -> Option<String> {
        self.by_name.json(Privacy::class_of_name(name), &self.value(raw))
    }

    fn fields(&self, text: &str, within: &[String]) -> Option<String> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
        let hidden = fields.into_iter().filter_map(|(name, value)| {
            let mut path = within.to_vec();
            path.push(name.clone());
            let value = self.at(&path, &name, value.get())?;
            Some((name, value))
        });
        let mut out = String::new();
        object(hidden, &mut out);
        Some(out)
    }

    fn at(&self, path: &[String], name: &str, raw: &str) -> Option<String> {
        if let Some((_, privacy)) = self.columns.iter().find(|(column, _)| *column == path) {
            return privacy.json(Some(Class::Identifier), &self.value(raw));
        }
        if self.columns.iter().any(|(column, _)| column.starts_with(path))
            && let Some(nested) = self.fields(raw, path)
        {
            return Some(nested);
        }
        self.field(name, raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, PrivacyMode};

    fn privacy(identifiers: PrivacyMode, contact_details: PrivacyMode) -> Privacy {
        Privacy::new(&config::Privacy { identifiers, contact_details }, [7; 32])
    }

    #[test]
    fn fields_of_columns_and_fields_by_name_are_hidden_and_nothing_else() {
        let by_name = privacy(PrivacyMode::Drop, PrivacyMode::Keep);
        let seller = ["Seller".to_owned(), "Name".to_owned()];
        let hash = || privacy(PrivacyMode::Hash, PrivacyMode::Hash);
        let classes = Classes::new(&by_name, std::iter::once((&seller[..], hash())));
        let text = r#"{"BirthDate":"1970-01-01","Email":"a@b","Score":0.50,"Seller":{"Age":4,"Name":"Ola"}}"#;
        let name = hash().hash("Ola");
        assert_eq!(
            classes.object(text),
            format!(r#"{{"Email":"a@b","Score":0.50,"Seller":{{"Age":4,"Name":"{name}"}}}}"#)
        );
        assert_eq!(classes.field("IdentityNumber", "\"1\""), None);
        assert_eq!(classes.value(r#"[{"BirthDate":"x","A":1}]"#), r#"[{"A":1}]"#);
    }

    #[test]
    fn what_is_hidden_as_it_comes_is_hidden_alike_afterwards() {
        let hash = privacy(PrivacyMode::Hash, PrivacyMode::Keep);
        let raw = r#"{"NationalId":"12","More":{"IdentityNumber":null,"Phone":"9"}}"#;
        let classes = Classes::new(&hash, std::iter::empty());
        assert_eq!(classes.object(raw), canonical(raw, &hash));
    }
}
