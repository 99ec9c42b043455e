//! Privacy applied to JSON that is stored already, where a setting became stricter.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::canonical::{canonical, object};
use super::privacy::Privacy;
use crate::catalog::Class;

/// What is to be hidden in the stored JSON of one table: the fields of some columns, also those of the
/// tables that take its lists, and, by their names, fields that no column takes.
///
/// The privacy of a column takes every text for an identifier. What was hidden before stays as it is.
pub(crate) struct Classes<'a> {
    by_name: &'a Privacy,
    /// By the path of the field, outermost object first.
    columns: Vec<(Vec<String>, Privacy)>,
    /// By the field that holds the list.
    lists: BTreeMap<String, Classes<'a>>,
    /// Of elements that are no record.
    bare: Option<Privacy>,
}

impl<'a> Classes<'a> {
    /// `by_name` hides what falls under a class by its name, and nothing else is hidden yet.
    pub(crate) fn new(by_name: &'a Privacy) -> Classes<'a> {
        Classes { by_name, columns: Vec::new(), lists: BTreeMap::new(), bare: None }
    }

    /// Hides the field of a column.
    pub(crate) fn hide_field(&mut self, path: Vec<String>, privacy: Privacy) {
        self.columns.push((path, privacy));
    }

    /// Hides elements that are bare values, where this is a table of list elements.
    pub(crate) fn hide_bare(&mut self, privacy: Privacy) {
        self.bare = Some(privacy);
    }

    /// A table takes the list in this field.
    pub(crate) fn add_list(&mut self, field: String, of_table: Classes<'a>) {
        self.lists.insert(field, of_table);
    }

    /// Whether any column hides something; names may.
    pub(crate) fn hides_columns(&self) -> bool {
        self.strictest().is_some()
    }

    /// An object as it stands in `_extra`.
    pub(crate) fn object(&self, text: &str) -> String {
        self.fields(text, &[]).unwrap_or_else(|| text.to_owned())
    }

    /// An example of a field that no column took when it came, by its path; `None` is dropped.
    pub(crate) fn example(&self, path: &[String], raw: &str) -> Option<String> {
        self.at(path, raw)
    }

    /// What did not fit the column whose field has this path; `None` is dropped.
    pub(crate) fn misfit(&self, path: &[String], raw: &str) -> Option<String> {
        let value = self.value(raw);
        // Of an object that was none, all columns that take parts of it show the whole.
        let shares = |column: &[String]| {
            column == path || (column.len() > 1 && path.len() > 1 && column[0] == path[0])
        };
        let columns = self.columns.iter().filter(|(column, _)| shares(column));
        hide(columns.map(|(_, privacy)| privacy), value)
    }

    /// What did not fit a column that the table has no more, and whose field nobody knows.
    pub(crate) fn orphan(&self, raw: &str) -> Option<String> {
        hide(self.strictest().into_iter(), self.value(raw))
    }

    fn strictest(&self) -> Option<&Privacy> {
        let columns = self.columns.iter().map(|(_, privacy)| privacy).chain(&self.bare);
        strictest(columns.chain(self.lists.values().filter_map(Classes::strictest)))
    }

    fn value(&self, raw: &str) -> String {
        canonical(raw, self.by_name)
    }

    fn fields(&self, text: &str, within: &[String]) -> Option<String> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
        let hidden = fields.into_iter().filter_map(|(name, value)| {
            let mut path = within.to_vec();
            path.push(name.clone());
            let value = self.at(&path, value.get())?;
            Some((name, value))
        });
        let mut out = String::new();
        object(hidden, &mut out);
        Some(out)
    }

    fn at(&self, path: &[String], raw: &str) -> Option<String> {
        if let Some((_, privacy)) = self.columns.iter().find(|(column, _)| *column == path) {
            return hide(std::iter::once(privacy), self.value(raw));
        }
        let name = path.last().map_or("", String::as_str);
        let by_name = |text: String| self.by_name.json(Privacy::class_of_name(name), &text);
        if let [field] = path
            && let Some(of_table) = self.lists.get(field)
        {
            return of_table.elements(raw).and_then(by_name);
        }
        let inside = self.columns.iter().filter(|(column, _)| column.starts_with(path));
        let inside: Vec<&Privacy> = inside.map(|(_, privacy)| privacy).collect();
        if inside.is_empty() {
            return by_name(self.value(raw));
        }
        let is_object = raw.starts_with('{');
        match self.fields(raw, path).filter(|_| is_object) {
            Some(nested) => Some(nested),
            None if raw == "null" => Some(raw.to_owned()),
            // It may hold what any of the columns would.
            None => hide(inside.into_iter(), self.value(raw)).and_then(by_name),
        }
    }

    /// A list of which this table takes the elements.
    fn elements(&self, raw: &str) -> Option<String> {
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw) else {
            return hide(self.strictest().into_iter(), self.value(raw));
        };
        let items = items.into_iter().map(|item| match item.get().as_bytes().first() {
            Some(b'{') => self.object(item.get()),
            _ => {
                hide(self.bare.iter(), self.value(item.get())).unwrap_or_else(|| "null".to_owned())
            }
        });
        Some(format!("[{}]", items.collect::<Vec<_>>().join(",")))
    }
}

fn strictest<'p>(all: impl Iterator<Item = &'p Privacy>) -> Option<&'p Privacy> {
    all.max_by_key(|privacy| privacy.mode(Some(Class::Identifier)))
}

/// A value under the strictest of these.
fn hide<'p>(all: impl Iterator<Item = &'p Privacy>, value: String) -> Option<String> {
    match strictest(all) {
        Some(privacy) => privacy.json(Some(Class::Identifier), &value),
        None => Some(value),
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
        let mut classes = Classes::new(&by_name);
        classes.hide_field(seller.to_vec(), hash());
        let text = r#"{"BirthDate":"1970-01-01","Email":"a@b","Score":0.50,"Seller":{"Age":4,"Name":"Ola"}}"#;
        let name = hash().hash("Ola");
        assert_eq!(
            classes.object(text),
            format!(r#"{{"Email":"a@b","Score":0.50,"Seller":{{"Age":4,"Name":"{name}"}}}}"#)
        );
        assert_eq!(classes.example(&path("IdentityNumber"), "\"1\""), None);
        let list = r#"[{"BirthDate":"x","A":1}]"#;
        assert_eq!(classes.misfit(&path("Score"), list).as_deref(), Some(r#"[{"A":1}]"#));
    }

    #[test]
    fn what_is_hidden_as_it_comes_is_hidden_alike_afterwards() {
        let hash = privacy(PrivacyMode::Hash, PrivacyMode::Keep);
        let raw = r#"{"NationalId":"12","More":{"IdentityNumber":null,"Phone":"9"}}"#;
        let classes = Classes::new(&hash);
        assert_eq!(classes.object(raw), canonical(raw, &hash));
        assert_eq!(classes.object(&classes.object(raw)), canonical(raw, &hash), "and once");
    }

    #[test]
    fn a_field_is_found_by_its_whole_path_and_not_by_its_name_alone() {
        let (keep, hash) = (keep(), privacy(PrivacyMode::Hash, PrivacyMode::Hash));
        let mut classes = Classes::new(&keep);
        classes.hide_field(path("Seller.Number"), hash.clone());
        let hidden = format!("\"{}\"", hash.hash("12"));
        assert_eq!(classes.example(&path("Seller.Number"), "\"12\""), Some(hidden.clone()));
        assert_eq!(classes.example(&path("Number"), "\"12\"").as_deref(), Some("\"12\""));
        assert_eq!(
            classes.example(&path("Seller"), r#"{"Age":4,"Number":"12"}"#),
            Some(format!(r#"{{"Age":4,"Number":{hidden}}}"#))
        );
        assert_eq!(classes.example(&path("Seller"), "\"12\""), Some(hidden), "no object");
        assert_eq!(classes.example(&path("Seller"), "null").as_deref(), Some("null"));
    }

    #[test]
    fn an_object_that_was_none_is_hidden_wherever_it_is_shown() {
        let (keep, drop) = (keep(), privacy(PrivacyMode::Drop, PrivacyMode::Drop));
        let mut classes = Classes::new(&keep);
        classes.hide_field(path("Seller.Number"), drop);
        assert_eq!(classes.misfit(&path("Seller.Name"), "\"12\""), None);
        assert_eq!(classes.misfit(&path("Buyer.Name"), "\"12\"").as_deref(), Some("\"12\""));
        assert_eq!(classes.orphan("\"12\""), None, "of a column that is gone");
        assert_eq!(Classes::new(&keep).orphan("\"12\"").as_deref(), Some("\"12\""));
    }

    #[test]
    fn lists_that_another_table_takes_are_hidden_element_by_element() {
        let (keep, hash) = (keep(), privacy(PrivacyMode::Hash, PrivacyMode::Hash));
        let mut owners = Classes::new(&keep);
        owners.hide_field(path("Name"), hash.clone());
        owners.hide_bare(hash.clone());
        let mut classes = Classes::new(&keep);
        classes.add_list("Owners".to_owned(), owners);
        let name = hash.hash("Ola");
        assert_eq!(
            classes.object(r#"{"Name":"Kari","Owners":[{"Age":4,"Name":"Ola"},"Ola"]}"#),
            format!(r#"{{"Name":"Kari","Owners":[{{"Age":4,"Name":"{name}"}},"{name}"]}}"#)
        );
        assert_eq!(classes.object(r#"{"Owners":"Ola"}"#), format!(r#"{{"Owners":"{name}"}}"#));
    }

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    fn keep() -> Privacy {
        privacy(PrivacyMode::Keep, PrivacyMode::Keep)
    }
}
