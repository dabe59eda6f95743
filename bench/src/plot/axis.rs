//! Axes: the scale, its range, and its ticks.
//!
//! `super` makes a vertical axis of the values and a horizontal one of the parameters of a plot.
//! Values that are not finite or not above zero do not count for the range; without any the values
//! range from 1 to 1, and nothing fails. A vertical axis is logarithmic from a ratio of [`LOG_Y`]
//! (50) on, a horizontal one from [`LOG_X`] (8) on. The functions are pure: they draw nothing.

/// Ratio of the largest to the smallest value from which the vertical axis is logarithmic: with a
/// linear axis the small values would lie on the frame.
const LOG_Y: f64 = 50.0;
/// The same for the horizontal axis.
const LOG_X: f64 = 8.0;
/// Number of intervals of a linear axis at most.
const INTERVALS: f64 = 6.0;
/// Room beside the first and the last point, as a part of the horizontal axis.
const MARGIN: f64 = 0.04;

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    /// Values with a grid line and a label.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// Returns a vertical axis for positive values: linear from zero, or logarithmic if the largest
    /// is at least [`LOG_Y`] times the smallest.
    pub fn vertical(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = range(values);
        if most / least < LOG_Y {
            return Self::linear(most);
        }
        let low = steps(least / 10.0, least).into_iter().next_back().unwrap_or(least);
        let high = steps(most, most * 10.0).into_iter().next().unwrap_or(most);
        let decades = (high / low).log10();
        let is_labelled = |tick: &f64| decades < 2.5 || leading(*tick) == 1.0;
        let ticks = steps(low, high).into_iter().filter(is_labelled).collect();
        Self { is_log: true, low, high, ticks }
    }

    fn linear(most: f64) -> Self {
        let rough = most / INTERVALS;
        let step = steps(rough, rough * 10.0).into_iter().next().unwrap_or(rough);
        let count = (most / step).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|n| f64::from(n) * step).collect();
        Self { is_log: false, low: 0.0, high: count * step, ticks }
    }

    /// Returns a horizontal axis with a tick at each value.
    pub fn horizontal(values: impl Iterator<Item = f64>) -> Self {
        let mut ticks: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let (least, most) = range(ticks.iter().copied());
        let is_log = most / least >= LOG_X;
        let bare = Self { is_log, low: least, high: most.max(least * 1.001), ticks };
        let room = (bare.scaled(bare.high) - bare.scaled(bare.low)) * MARGIN;
        let back = |at: f64| if is_log { 10_f64.powf(at) } else { at };
        let (low, high) = (bare.scaled(bare.low) - room, bare.scaled(bare.high) + room);
        Self { low: back(low), high: back(high), ..bare }
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.is_log { value.log10() } else { value }
    }

    /// Returns the place of a value, from 0 at the low end to 1 at the high end.
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = (self.scaled(self.low), self.scaled(self.high));
        (self.scaled(value) - low) / (high - low)
    }

    /// Returns whether the axis is logarithmic.
    pub fn is_log(&self) -> bool {
        self.is_log
    }
}

/// Returns the smallest and the largest of the positive values; 1 and 1 without any.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|value| value.is_finite() && *value > 0.0);
    let span = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    let (low, high) = positive.fold((f64::INFINITY, 0.0), span);
    if low.is_finite() { (low, high) } else { (1.0, 1.0) }
}

/// Returns the values 1, 2 and 5 times a power of ten from `low` to `high`.
fn steps(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decade = |power: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power));
    let all = (first..=last).flat_map(decade);
    all.filter(|step| *step >= low * 0.999_999 && *step <= high * 1.000_001).collect()
}

/// Returns the leading digit of a step.
fn leading(step: f64) -> f64 {
    (step / 10_f64.powf(step.log10().floor() + 1e-9).max(f64::MIN_POSITIVE)).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_axis_is_linear_from_zero_unless_values_differ_by_decades() {
        let near = Axis::vertical([7.8, 21.0, 10.7].into_iter());
        assert_eq!((near.is_log, near.low, near.high), (false, 0.0, 25.0));
        assert_eq!(near.ticks, [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        let far = Axis::vertical([0.11, 120.0].into_iter());
        assert!(far.is_log && far.ticks.len() >= 3, "{far:?}");
        assert!(far.at(0.11) >= 0.0 && far.at(120.0) <= 1.0, "{far:?}");
    }

    #[test]
    fn plot_axis_has_a_tick_at_each_size_inside_the_frame() {
        let sizes = Axis::horizontal([8.0, 1024.0, 8.0, f64::NAN, 1_048_576.0].into_iter());
        assert_eq!(sizes.ticks, [8.0, 1024.0, 1_048_576.0]);
        assert!(sizes.is_log && sizes.at(8.0) > 0.0 && sizes.at(1_048_576.0) < 1.0);
        let bursts = Axis::horizontal([1.0, 4.0].into_iter());
        assert!(!bursts.is_log);
    }
}
