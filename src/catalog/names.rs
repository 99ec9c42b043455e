//! Names that tell a privacy class, for fields that no column takes, and of whom a column is.

use std::sync::LazyLock;

use heck::ToSnakeCase;
use serde::Deserialize;

use super::Class;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Names {
    identifier: Patterns,
    contact_detail: Patterns,
    no_person: Patterns,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patterns {
    /// Anywhere in the letters and digits of a name.
    #[serde(default)]
    parts: Vec<String>,
    /// A whole word of a name: too short to be looked for within others.
    #[serde(default)]
    words: Vec<String>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    // Built in, and read by a test.
    toml::from_str(include_str!("names.toml")).unwrap_or_else(|e| unreachable!("names.toml: {e}"))
});

impl Patterns {
    fn match_name(&self, name: &str, letters: &str) -> bool {
        self.parts.iter().any(|part| letters.contains(part.as_str()))
            || self.words.iter().any(|word| {
                letters.contains(word.as_str())
                    && name.to_snake_case().split('_').any(|own| own == word)
            })
    }
}

/// The privacy class of a field that no column takes, by its name (docs/architecture.md, "Privacy").
pub(crate) fn class_of_name(name: &str) -> Option<Class> {
    let letters: String =
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if NAMES.identifier.match_name(name, &letters) {
        Some(Class::Identifier)
    } else if NAMES.contact_detail.match_name(name, &letters) {
        Some(Class::ContactDetail)
    } else {
        None
    }
}

/// Whether what is called so, a table or a column, is of places or organisations (docs/architecture.md, "Forgetting").
pub(super) fn is_of_no_person(name: &str) -> bool {
    NAMES.no_person.match_name(name, &name.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("IdentityNumber", Some(Class::Identifier))]
    #[case("SellerFødselsnummer", Some(Class::Identifier))]
    #[case("FODSELSNUMMER", Some(Class::Identifier))]
    #[case("fødsels_nummer", Some(Class::Identifier))]
    #[case("Personnummer", Some(Class::Identifier))]
    #[case("SSN", Some(Class::Identifier))]
    #[case("BuyerSsn", Some(Class::Identifier))]
    #[case("DateOfBirth", Some(Class::Identifier))]
    #[case("PersonNumber", Some(Class::Identifier))]
    #[case("BirthNumber", Some(Class::Identifier))]
    #[case("PassportNo", Some(Class::Identifier))]
    #[case("TaxId", Some(Class::Identifier))]
    #[case("NationalInsuranceNumber", Some(Class::Identifier))]
    #[case("Fnr", None)]
    #[case("PublicTaxes", None)]
    #[case("Mobil", Some(Class::ContactDetail))]
    #[case("PrivatTelefon", Some(Class::ContactDetail))]
    #[case("TlfArbeid", Some(Class::ContactDetail))]
    #[case("E-post", Some(Class::ContactDetail))]
    #[case("E-Mail", Some(Class::ContactDetail))]
    #[case("Mail", Some(Class::ContactDetail))]
    #[case("PhoneNumbers", Some(Class::ContactDetail))]
    #[case("BusinessName", None)]
    #[case("ClassName", None)]
    #[case("PersonId", None)]
    #[case("ExternalId", None)]
    fn a_name_tells_the_class(#[case] name: &str, #[case] class: Option<Class>) {
        assert_eq!(class_of_name(name), class);
    }
}
