//! Medians and their spread.
//!
//! `rounds` makes a [`Spread`] of the figures of a row's rounds, which `row`, `plots`, `report` and
//! `index` use. The median of an even number of values is the larger of the two in the middle. The
//! spread of no values is not a number. No figure is removed as an outlier. [`Spread::of`] sorts
//! the values and never fails; an infinite figure counts as any other.

use serde::Serialize;

/// Median and range of several runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Creates the spread of at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Self { min: at(0), median: at(values.len() / 2), max: at(values.len().saturating_sub(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn spread_median_is_the_middle_value() {
        let spread = Spread::of(vec![5.0, 1.0, 9.0]);
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 5.0, 9.0));
    }
}
