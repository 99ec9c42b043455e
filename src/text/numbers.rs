//! Numbers of JSON, read in one way by whoever asks what an id is.

/// A whole number, as which `1053.0` and `1.053e3` count too.
///
/// # Errors
/// Why it is none, in words that repeat nothing of it.
pub(crate) fn whole_number(raw: &str) -> Result<i64, String> {
    // The common case, without exponent or fraction.
    if let Ok(value) = raw.parse::<i64>() {
        return Ok(value);
    }
    let value = scaled(raw, 0, "a whole number")?;
    i64::try_from(value).map_err(|_| "out of the range of BIGINT".to_owned())
}

/// The digits of a JSON number as an integer of `scale` decimals. Trailing zeros are no decimals.
pub(crate) fn scaled(raw: &str, scale: u32, wanted: &str) -> Result<i128, String> {
    if !matches!(raw.as_bytes().first(), Some(b'-' | b'0'..=b'9')) {
        return Err(wrong_type(wanted, raw));
    }
    let not_a_number = || format!("not {wanted}");
    let (mantissa, exponent) = match raw.split_once(['e', 'E']) {
        Some((m, e)) => (m, e.parse::<i32>().map_err(|_| not_a_number())?),
        None => (raw, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = || whole.bytes().chain(fraction.bytes());
    if all().any(|b| !b.is_ascii_digit()) {
        return Err(not_a_number());
    }
    let significant: Vec<u8> = all().skip_while(|b| *b == b'0').collect();
    if significant.is_empty() {
        return Ok(0);
    }
    // The value is `significant` × 10^shift in units of 10^-scale.
    let mut shift = i64::from(exponent) - fraction.len() as i64 + i64::from(scale);
    let mut digits = significant.as_slice();
    if scale > 0
        && let Some(value) = without_tail(digits, shift)
    {
        return Ok(if negative { -value } else { value });
    }
    while shift < 0 {
        match digits.split_last() {
            Some((b'0', rest)) => digits = rest,
            Some(_) if scale == 0 => {
                return Err("a fraction where a whole number belongs".to_owned());
            }
            Some(_) => return Err(format!("more than {scale} decimals")),
            None => break,
        }
        shift += 1;
    }
    if digits.len() as i64 + shift > 30 {
        return Err("out of range".to_owned());
    }
    let mut value: i128 = 0;
    for digit in digits {
        value = value * 10 + i128::from(digit - b'0');
    }
    for _ in 0..shift {
        value *= 10;
    }
    Ok(if negative { -value } else { value })
}

/// Decimals beyond the column's from which on a number can be the tail of a binary fraction: an amount
/// has eight in all.
const TAIL_DECIMALS: usize = 6;
/// How far such a number may be from one that fits, as a power of ten of the column's last decimal: an
/// amount 0.000001, which is 10^-4 of 0.01.
const TAIL_ZEROS: usize = 4;

/// The value of `digits` × 10^shift, rounded, where what is beyond its last decimal is the tail of a
/// binary fraction: `1234.5600000001` was an amount before it was a double.
fn without_tail(digits: &[u8], shift: i64) -> Option<i128> {
    let ends = digits.iter().rposition(|b| *b != b'0')? + 1;
    let beyond = usize::try_from(-shift).ok()?.checked_sub(digits.len() - ends)?;
    if beyond < TAIL_DECIMALS || ends > beyond + 30 {
        return None;
    }
    let whole = digits[..ends.saturating_sub(beyond)].iter();
    let whole = whole.fold(0, |value: i128, digit| value * 10 + i128::from(digit - b'0'));
    // What is beyond begins with so many zeros, or is a nine short of the next: 0.0000.. or 0.9999..
    let zeros = beyond.saturating_sub(ends).min(TAIL_ZEROS);
    let first = &digits[ends.saturating_sub(beyond)..ends];
    let first = &first[..first.len().min(TAIL_ZEROS - zeros)];
    if first.iter().all(|b| *b == b'0') {
        Some(whole)
    } else if zeros == 0 && first.iter().all(|b| *b == b'9') {
        Some(whole + 1)
    } else {
        None
    }
}

/// What stands where something else belongs, without repeating it.
pub(crate) fn wrong_type(wanted: &str, raw: &str) -> String {
    let met = match raw.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "true or false",
        Some(b'-' | b'0'..=b'9') => "a number",
        _ => "null",
    };
    format!("{met} where {wanted} belongs")
}
