//! Line plots as SVG, both axes logarithmic: size against rate or latency.
//!
//! `plots` draws a plot for each family of rows at the end of a run. A series beyond the sixth
//! repeats colours; a plot without points has empty axes. The function is pure and writes no file.

use std::fmt::Write;

/// A line of a plot.
#[derive(Debug)]
pub struct Series {
    /// Its label beside the plot.
    pub name: String,
    /// Points; both coordinates are above zero.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 6] = ["#0b6e4f", "#c8553d", "#2f5d9b", "#8d6a9f", "#b8860b", "#555555"];

/// Returns the powers of ten that enclose the values.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|v| v.is_finite() && *v > 0.0) {
        low = low.min(value.log10().floor());
        high = high.max(value.log10().ceil());
    }
    if low.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 1.0) }
}

/// Draws the series as SVG.
pub fn svg(title: &str, x_name: &str, y_name: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| s.points.iter().copied());
    let (x0, x1) = decades(points().map(|p| p.0));
    let (y0, y1) = decades(points().map(|p| p.1));
    let x = |v: f64| LEFT + (v.log10() - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| HEIGHT - BOTTOM - (v.log10() - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for power in x0 as i32..=x1 as i32 {
        let at = x(10_f64.powi(power));
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">10<tspan dy=\"-5\" \
             font-size=\"9\">{power}</tspan></text>",
            bottom + 18.0
        );
    }
    for power in y0 as i32..=y1 as i32 {
        let at = y(10_f64.powi(power));
        let label = format!("{}", 10_f64.powi(power));
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (index, one) in series.iter().enumerate() {
        let colour = COLOURS.get(index % COLOURS.len()).copied().unwrap_or("black");
        let finite = one.points.iter().filter(|p| p.0.is_finite() && p.1.is_finite() && p.1 > 0.0);
        let path: Vec<String> = finite.map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        let row = TOP + 14.0 + 18.0 * index as f64;
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{row:.1}\" fill=\"{colour}\">{}</text>",
            path.join(" "),
            right + 10.0,
            one.name
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}</text>\
         <text x=\"16\" y=\"{:.1}\" transform=\"rotate(-90 16 {:.1})\" \
         text-anchor=\"middle\">{y_name}</text>\n</svg>",
        (LEFT + right) / 2.0,
        HEIGHT - 12.0,
        (TOP + bottom) / 2.0,
        (TOP + bottom) / 2.0
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_keeps_points_inside_and_omits_invalid_values() {
        let series = [Series {
            name: "ours".into(),
            points: vec![(64.0, 0.5), (f64::NAN, 1.0), (65_536.0, 8.0), (4096.0, 0.0)],
        }];
        let text = svg("t", "x", "y", &series);
        let line = text.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.split(' ').count(), 2);
        for pair in line.split(' ') {
            let (x, y) = pair.split_once(',').unwrap();
            assert!((LEFT..=WIDTH - RIGHT).contains(&x.parse().unwrap()));
            assert!((TOP..=HEIGHT - BOTTOM).contains(&y.parse().unwrap()));
        }
    }
}
