//! How the table in `keys` is written, and what is made of it.

use figment::value::Value;

use super::setting::{self, Shape};

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// `section.key`.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// The lines before it in the sample file. A key without any shares those of the key before.
    pub(super) comment: &'static [&'static str],
    /// What the sample file sets it to, in TOML: the default, or what has to be replaced.
    pub(super) sample: &'static str,
    pub(super) is_required: bool,
}

impl Key {
    /// The section, and the name in it.
    pub(super) fn path(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').expect("`sections!` puts every key into a section")
    }

    /// The value in the sample file.
    pub(super) fn sample_value(&self) -> Value {
        setting::toml_value(self.sample)
    }
}

/// A key that has a default.
pub(super) const fn default(
    name: &'static str,
    shape: Shape,
    comment: &'static [&'static str],
    sample: &'static str,
) -> Key {
    Key { name, shape, comment, sample, is_required: false }
}

/// A key that has to be set; `sample` is a placeholder that is refused as long as it stands.
pub(super) const fn required(
    name: &'static str,
    shape: Shape,
    comment: &'static [&'static str],
    sample: &'static str,
) -> Key {
    Key { name, shape, comment, sample, is_required: true }
}

/// The sections of the configuration, each with its keys:
///
/// ```text
/// /// What the section is about.
/// pub(crate) struct Name in name {
///     /// The comment in the sample file, line by line.
///     pub(crate) key: Type = method(arguments), default "value in TOML";
/// }
/// ```
///
/// `method` is the one of `Reader` that reads the key and knows what is allowed: it is called with
/// the key's name and these arguments, and gives `Option<Type>`. `required` in the place of
/// `default` is followed by a placeholder. `key or key_file: Type` says that the value may stand in
/// a file that `key_file` names, which `method` has to see to.
///
/// Made of it are: a struct for each section, with a function that reads it; [`Config`], which holds
/// them all, with functions that read it and show it; and the table of all keys, `KEYS`. The shape
/// of a key and how it is shown follow from its type (`Setting`).
///
/// [`Config`]: super::Config
macro_rules! sections {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis struct $Section:ident in $section:ident {
            $(
                $(#[doc = $line:literal])*
                $key_visibility:vis $key:ident $(or $file:ident)?: $type:ty =
                    $method:ident($($argument:expr),*), $preset:ident $sample:tt;
            )+
        }
    )+) => {
        /// Every key, in the order of the sample file.
        pub(super) const KEYS: &[Key] = &[$($(
            declare::$preset(
                concat!(stringify!($section), ".", stringify!($key)),
                <$type as Setting>::SHAPE,
                &[$($line),*],
                stringify!($sample),
            ),
            $(declare::default(
                concat!(stringify!($section), ".", stringify!($file)),
                Shape::Text,
                &[],
                "\"\"",
            ),)?
        )+)+];

        $(
            $(#[$attribute])*
            #[derive(Debug, Clone)]
            // The lines are written for the sample file, which is not Markdown.
            #[allow(rustdoc::bare_urls)]
            $visibility struct $Section {
                $( $(#[doc = $line])* $key_visibility $key: $type, )+
            }

            impl $Section {
                /// Reads every key, so that all violations are found, and only then makes the whole.
                fn read(reader: &mut Reader) -> Option<$Section> {
                    $( let $key: Option<$type> = reader.$method(
                        concat!(stringify!($section), ".", stringify!($key)),
                        $($argument),*
                    ); )+
                    Some($Section { $($key: $key?),+ })
                }
            }
        )+

        /// Everything that can be set. Paths are absolute, durations are above zero where zero makes
        /// no sense: [`Config::load`] has checked it.
        #[derive(Debug, Clone)]
        pub struct Config {
            $( $visibility $section: $Section, )+
            /// Where each key was set, by its name, for messages that come after loading.
            pub(super) origins: BTreeMap<&'static str, Origin>,
            /// What is allowed and dangerous.
            pub(super) cautions: Vec<String>,
        }

        impl Config {
            /// Reads every section, so that all violations are found, and only then makes the whole.
            pub(super) fn read(reader: &mut Reader) -> Option<Config> {
                $( let $section = $Section::read(reader); )+
                Some(Config {
                    $($section: $section?,)+
                    origins: reader.origins(),
                    cautions: std::mem::take(&mut reader.cautions),
                })
            }

            /// Every key with its effective value, as a caller and the daemon compare them
            /// (docs/architecture.md, "Commands"). A secret is a digest by `salt`, however it was
            /// given; what is off or not set is the empty text or zero. Equal texts mean equal
            /// behaviour.
            pub(crate) fn compared_keys(&self, salt: &Salt) -> BTreeMap<String, String> {
                let keys = [$($((
                    concat!(stringify!($section), ".", stringify!($key)),
                    match self.$section.$key.secret() {
                        Some(secret) => salt.digest(secret),
                        None => self.$section.$key.shown(),
                    },
                )),+),+];
                keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }
        }
    };
}

pub(super) use sections;
