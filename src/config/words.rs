//! The enumerations of the configuration and the words that stand for them, in both directions.

use std::fmt;

use super::{FeedStyle, JournalLevel, PrivacyMode, Reread};

/// A value that is written as one of a few words.
pub(super) trait Word: Copy + 'static {
    /// Every word with its value.
    const WORDS: &'static [(&'static str, Self)];
}

/// Words and `Display` of an enumeration from one list.
macro_rules! words {
    ($enumeration:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl Word for $enumeration {
            const WORDS: &'static [(&'static str, Self)] =
                &[$(($word, $enumeration::$variant)),+];
        }

        /// The word that stands for it in the configuration.
        impl fmt::Display for $enumeration {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($enumeration::$variant => $word),+
                })
            }
        }
    };
}

words!(FeedStyle { Odata = "odata", FromDate = "from_date" });
words!(JournalLevel { Offices = "offices", BrokerCompanies = "broker_companies", Chain = "chain" });
words!(Reread { Changed = "changed", All = "all", Off = "off" });
words!(PrivacyMode { Keep = "keep", Hash = "hash", Drop = "drop" });
