//! How a secret may be written in what others say.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Shorter parts of an encoded secret are not looked for: they stand in any text.
const SHORTEST_SPELLING: usize = 8;

/// How a text may stand in an answer that repeats what it was asked with: as it is, in a form, in an address, in
/// JSON, and in Base64 of whatever stands before it.
pub(super) fn spellings(secret: &str) -> Vec<String> {
    let form: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let lower = |text: &str| {
        let mut parts = text.split('%');
        let mut lower = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
            lower.push('%');
            lower.push_str(&code.to_ascii_lowercase());
            lower.push_str(rest);
        }
        lower
    };
    let address = form.replace('+', "%20");
    // Of a form that was read back as if it were none.
    let spaced = secret.replace('+', " ");
    let json = serde_json::Value::from(secret).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let escaped = |text: &str| text.replace('/', "\\/");
    let ascii: String = json
        .chars()
        .flat_map(|c| {
            let mut units = [0; 2];
            let escape = |unit: &u16| format!("\\u{unit:04x}");
            let text = if c.is_ascii() {
                c.to_string()
            } else {
                c.encode_utf16(&mut units).iter().map(escape).collect()
            };
            text.chars().collect::<Vec<_>>()
        })
        .collect();
    let mut all = vec![secret.to_owned(), lower(&form), lower(&address), form, address, spaced];
    all.extend([escaped(&json), escaped(&ascii), json, ascii]);
    all.extend(in_base64(secret));
    // A longer one may have a shorter one in it, and a short part says nothing of a secret.
    all.retain(|text| text.len() >= secret.len().min(SHORTEST_SPELLING));
    all.sort_unstable_by_key(|text| std::cmp::Reverse(text.len()));
    all.dedup();
    all
}

/// The digits of Base64 that a text determines, wherever in what was encoded it begins.
fn in_base64(text: &str) -> Vec<String> {
    let of = |ahead: usize| {
        let bytes: Vec<u8> = std::iter::repeat_n(0, ahead).chain(text.bytes()).collect();
        // The first digits are those of what stands before it too, the last ones of what follows.
        let from = (ahead * 8).div_ceil(6);
        let to = bytes.len() * 8 / 6;
        [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
            .map(|digits| digits.get(from..to).unwrap_or_default().to_owned())
    };
    (0..3).flat_map(of).filter(|digits| digits.len() >= SHORTEST_SPELLING).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_at_its_ends_are_part_of_a_secret() {
        let all = spellings("\"ab/cd ef\"");
        for written in
            ["\"ab/cd ef\"", "\\\"ab\\/cd ef\\\"", "%22ab%2fcd%20ef%22", "%22ab%2Fcd+ef%22"]
        {
            assert!(all.iter().any(|one| one == written), "{written} in {all:?}");
        }
    }
}
