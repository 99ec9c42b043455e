//! What the stored values of a column depend on, as a text: another text means that they are read again,
//! or rewritten where nothing but privacy became stricter.

use super::privacy;
use crate::catalog::{Class, Column, Scalar};
use crate::config::{Config, PrivacyMode};

/// What becomes of a column's values.
pub(super) fn mode(config: &Config, column: &Column) -> PrivacyMode {
    match column.class {
        Some(Class::Identifier) => config.privacy.identifiers,
        Some(Class::ContactDetail) => config.privacy.contact_details,
        None => PrivacyMode::Keep,
    }
}

/// What a column's stored values depend on: its own definition, privacy and, for instants, the zone.
pub(super) fn definition(config: &Config, column: &Column) -> String {
    let mode = mode(config, column);
    let zone = match column.kind.scalar {
        Scalar::Instant => config.source.time_zone.iana_name().unwrap_or(""),
        _ => "",
    };
    format!("{}|{mode:?}|{zone}", column.definition())
}

/// A definition as what of it is not privacy, and the mode.
fn without_mode(definition: &str) -> Option<((&str, &str), PrivacyMode)> {
    let (rest, zone) = definition.rsplit_once('|')?;
    let (rest, mode) = rest.rsplit_once('|')?;
    Some(((rest, zone), privacy::parse_mode(mode)?))
}

/// What of a definition a resource file says.
pub(super) fn without_privacy_and_zone(definition: &str) -> &str {
    without_mode(definition).map_or(definition, |((rest, _), _)| rest)
}

/// The definition with this mode, where that hides more than the one it has.
pub(super) fn with_mode(definition: &str, mode: PrivacyMode) -> Option<String> {
    let ((rest, zone), before) = without_mode(definition)?;
    (mode > before).then(|| format!("{rest}|{mode:?}|{zone}"))
}

/// Whether a column so defined holds text, which alone can have a privacy class.
pub(super) fn is_text(definition: &str) -> bool {
    definition.starts_with("VARCHAR")
}

pub(super) fn differ_in_mode_alone(before: &str, now: &str) -> bool {
    match (without_mode(before), without_mode(now)) {
        (Some((before, _)), Some((now, _))) => before == now,
        _ => false,
    }
}

/// Whether a definition differs from the one before in nothing but hiding more.
pub(super) fn is_tighter(before: &str, now: &str) -> bool {
    let mode = |definition| without_mode(definition).map(|(_, mode)| mode);
    differ_in_mode_alone(before, now) && mode(now) > mode(before)
}
