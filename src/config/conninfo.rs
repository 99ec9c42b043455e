//! What libpq connects with, in its own notation: `host=db password='it\'s me'` (PostgreSQL's manual, "Keyword/Value
//! Connection Strings").

use std::fmt;

/// Keywords whose values are secrets.
const SECRET: [&str; 2] = ["password", "sslpassword"];

/// Keywords that say where a database is and who asks it: nobody writes a connection without one of them.
const USUAL: [&str; 10] = [
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "service",
    "sslmode",
    "sslpassword",
];

/// Keywords and values, in their order; of two with one keyword libpq takes the last.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Conninfo(Vec<(String, String)>);

impl Conninfo {
    /// `None` where libpq would not understand it either.
    pub(crate) fn parse(text: &str) -> Option<Conninfo> {
        let mut pairs = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (keyword, value) = rest.split_once('=')?;
            let keyword = keyword.trim_end();
            if keyword.is_empty() || keyword.contains(char::is_whitespace) {
                return None;
            }
            let (value, after) = taken(value.trim_start())?;
            pairs.push((keyword.to_owned(), value));
            rest = after.trim_start();
        }
        Some(Conninfo(pairs))
    }

    /// Whether a text is meant as such, be it right or not: a usual keyword stands before a `=` in it.
    pub(crate) fn is_meant(text: &str) -> bool {
        let ends_word = |c: char| c.is_whitespace() || ":;".contains(c);
        text.match_indices('=').any(|(at, _)| {
            let word = text[..at].trim_end().rsplit(ends_word).next().unwrap_or_default();
            USUAL.iter().any(|keyword| keyword.eq_ignore_ascii_case(word))
        })
    }

    /// A value as it stands between quotes.
    pub(crate) fn quoted(value: &str) -> String {
        value.replace('\\', r"\\").replace('\'', r"\'")
    }

    /// Whether the value of a keyword is a secret.
    pub(crate) fn is_secret(keyword: &str) -> bool {
        SECRET.contains(&keyword)
    }

    /// The secrets that are in it.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(key, _)| Conninfo::is_secret(key)).map(|(_, value)| value.as_str())
    }

    /// The same without its secrets.
    pub(crate) fn without_secrets(mut self) -> Conninfo {
        self.0.retain(|(key, _)| !Conninfo::is_secret(key));
        self
    }
}

/// A value, and what comes behind it.
fn taken(text: &str) -> Option<(String, &str)> {
    let (is_quoted, text) = match text.strip_prefix('\'') {
        Some(quoted) => (true, quoted),
        None => (false, text),
    };
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' if is_quoted => return Some((value, &text[at + 1..])),
            letter if !is_quoted && letter.is_whitespace() => return Some((value, &text[at..])),
            '\\' => value.extend(letters.next().map(|(_, escaped)| escaped)),
            letter => value.push(letter),
        }
    }
    (!is_quoted).then_some((value, ""))
}

/// As libpq reads it.
impl fmt::Display for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (key, value)) in self.0.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            let is_plain = !value.is_empty()
                && !value.contains(|c: char| c.is_whitespace() || c == '\'' || c == '\\');
            if is_plain {
                write!(f, "{space}{key}={value}")?;
            } else {
                write!(f, "{space}{key}='{}'", Conninfo::quoted(value))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_from_everything_that_only_looks_like_one() {
        for (text, secrets, without) in [
            ("host=db password=s3cret user=me", vec!["s3cret"], "host=db user=me"),
            (r"password = 'it\'s s3cret' host=db", vec!["it's s3cret"], "host=db"),
            (r"password=a\ b\\c host=db", vec![r"a b\c"], "host=db"),
            ("sslpassword=one password=two host=db", vec!["one", "two"], "host=db"),
            ("dbname=password_store password=x", vec!["x"], "dbname=password_store"),
            ("dbname='my lake' host=db", vec![], "dbname='my lake' host=db"),
            ("host=''", vec![], "host=''"),
            ("", vec![], ""),
        ] {
            let conninfo = Conninfo::parse(text).unwrap();
            assert_eq!(conninfo.secrets().collect::<Vec<_>>(), secrets, "{text}");
            assert_eq!(conninfo.without_secrets().to_string(), without, "{text}");
        }
    }

    #[test]
    fn what_is_meant_as_a_connection_is_told_from_a_path() {
        for (text, is) in [
            ("host=db password=s3cret", true),
            ("  dbname = lake", true),
            ("password=my s3cret", true),
            ("lake dbname=x", true),
            ("psql:dbname=lake", true),
            ("Server=db;Password=s3cret", true),
            ("data/lake.ducklake", false),
            ("data/host=db/lake.ducklake", false),
            ("./user=1/lake.ducklake", false),
            ("my_host=1", false),
            ("host", false),
            ("", false),
        ] {
            assert_eq!(Conninfo::is_meant(text), is, "{text}");
        }
    }

    #[test]
    fn what_libpq_does_not_understand_is_none() {
        for text in ["host", "host=db password=my s3cret", "password='open", "=x", "a b=c"] {
            assert!(Conninfo::parse(text).is_none(), "{text}");
        }
    }
}
