//! Ratios in words that cannot be misread: "2.9x slower", never "0.34x".
//!
//! `report` and `index` write the ratios of rows with it. The words depend on the unit: amounts are
//! less or more, times and rates are faster or slower. Factors up to [`EQUAL`] (1.03) are equal.
//! The functions are pure; a ratio of zero has an infinite factor. A unit that [`AMOUNTS`] does not
//! list counts as one of times or rates. The text is for people: the JSON of a row has the figures.

/// Largest factor that counts as equal, as in docs/performance.md.
const EQUAL: f64 = 1.03;
/// Units of amounts, of which there is more or less; the other units are of times and rates.
const AMOUNTS: [&str; 4] = ["%", "MiB", "KiB", "messages"];

/// Returns the words for a ratio that is above 1 where Causeway is better.
pub fn compared(unit: &str, ratio: f64) -> String {
    let is_amount = AMOUNTS.contains(&unit);
    let (factor, word) = match (ratio >= 1.0, is_amount) {
        (true, false) => (ratio, "as fast as"),
        (false, false) => (1.0 / ratio, "slower than"),
        (true, true) => (ratio, "less than"),
        (false, true) => (1.0 / ratio, "more than"),
    };
    if factor <= EQUAL { "equal to".into() } else { format!("{}x {word}", digits(factor)) }
}

/// Returns the range of a ratio over the rounds, as words; empty if its ends have the same words.
pub fn range(unit: &str, min: f64, max: f64) -> String {
    let (low, high) = (compared(unit, min), compared(unit, max));
    let short = |text: &str| text.trim_end_matches(" than").trim_end_matches(" as").to_owned();
    if low == high { String::new() } else { format!(" ({} to {})", short(&low), short(&high)) }
}

/// Returns a factor above 1 with two or three digits.
fn digits(factor: f64) -> String {
    match factor {
        factor if factor < 2.0 => format!("{factor:.2}"),
        factor if factor < 20.0 => format!("{factor:.1}"),
        factor => format!("{factor:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_ratios_have_factors_above_one() {
        assert_eq!(compared("Mpps", 1.963), "1.96x as fast as");
        assert_eq!(compared("us", 0.34), "2.9x slower than");
        assert_eq!(compared("us", 1.02), "equal to");
        assert_eq!(compared("MiB", 0.5), "2.0x more than");
        assert_eq!(compared("%", 40.0), "40x less than");
        assert_eq!(range("us", 0.8, 1.5), " (1.25x slower to 1.50x as fast)");
        assert_eq!(range("us", 2.0, 2.0), "");
    }
}
