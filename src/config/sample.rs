//! The sample file, made of the table of keys.

use std::sync::LazyLock;

use super::keys::KEYS;

/// The commented configuration file that `casemirror init` writes. Every key is in it: the required
/// ones with a placeholder that is refused as long as it stands, all others with their default,
/// commented out.
pub(crate) static TEMPLATE: LazyLock<String> = LazyLock::new(|| {
    let mut text = HEADER.to_owned();
    let mut current = "";
    for key in KEYS {
        let (section, name) = key.path();
        if section != current {
            text.push_str(&format!("\n[{section}]\n"));
            current = section;
        } else if !key.comment.is_empty() {
            text.push('\n');
        }
        for line in key.comment {
            text.push_str(&format!("#{line}\n"));
        }
        let mark = if key.is_required { "" } else { "#" };
        text.push_str(&format!("{mark}{name} = {}\n", key.sample));
    }
    text
});

const HEADER: &str = "\
# Configuration of casemirror.
#
# Every key is here. The three under [source] that are not commented out have to be filled in; all
# others show their default and can stay as they are. `casemirror check` says whether all is well,
# and changes nothing.
#
# Durations are written \"90s\", \"10m\" or \"2h 30m\", days \"yyyy-mm-dd\". Relative paths are relative to
# the folder of this file. Environment variables and the command line override this file:
# CASEMIRROR_SOURCE__CLIENT_SECRET and `--set source.client_secret=...` both set client_secret here.
";
