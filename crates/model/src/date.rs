//! Dates of the Gregorian calendar, in UTC, for log records and views.
//!
//! The logger and `causeway` call [`date`]. There are no time zones, no leap seconds, no times of
//! the day and no dates before 1970; the module reads no clock. The result has four digits for a
//! year up to 9999, and more for later years. The function is pure, and runs in the thread that
//! logs or prints.

/// Returns the date of a time in seconds since 1970, in UTC, as `2026-11-21`.
///
/// The civil-from-days method: years begin on 1 March and are counted in eras of 400.
pub fn date(seconds: u64) -> String {
    let days = (seconds / 86_400).saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let leap_days = (day / 1_460).saturating_add(day / 146_096).saturating_sub(day / 36_524);
    let year = day.saturating_sub(leap_days) / 365;
    let before = year.saturating_mul(365).saturating_add(year / 4).saturating_sub(year / 100);
    let day = day.saturating_sub(before);
    let month = day.saturating_mul(5).saturating_add(2) / 153;
    let before = month.saturating_mul(153).saturating_add(2) / 5;
    let day = day.saturating_sub(before).saturating_add(1);
    let month = if month < 10 { month.saturating_add(3) } else { month.saturating_sub(9) };
    let year = year.saturating_add(era.saturating_mul(400)).saturating_add(u64::from(month <= 2));
    format!("{year:04}-{month:02}-{day:02}")
}
