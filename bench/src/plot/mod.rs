//! Line plots as SVG: a figure over a parameter, with markers and spreads.
//!
//! `plots` draws a plot for each family of rows, again after each row. The vertical axis begins at
//! zero, or is logarithmic if the values differ by a factor of 50 or more ([`axis`]). A whisker
//! reaches from the smallest to the largest figure. Title, unit, direction ("higher is better") and
//! conditions stand in the plot, so that a copied image explains itself. Colours repeat after six
//! series, and markers after four. The functions are pure and write no file. Points with a value
//! that is not finite or not above zero are left out, and a plot in which no series has two points
//! is `None`. Texts are escaped. Each call stands alone; `published` draws the plots of the
//! documents in its test.

mod axis;

use std::fmt::Write;

use axis::Axis;

/// A point of a series; drawn only if all values are finite and above zero.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// The parameter.
    pub x: f64,
    /// The smallest figure.
    pub min: f64,
    /// The figure.
    pub y: f64,
    /// The largest figure.
    pub max: f64,
}

/// A line of a plot.
#[derive(Debug)]
pub struct Series {
    /// Its label beside the plot.
    pub name: String,
    /// The points.
    pub points: Vec<Point>,
}

/// A plot.
#[derive(Debug)]
pub struct Plot {
    /// What is measured.
    pub title: String,
    /// Name and unit of the parameter.
    pub x_name: String,
    /// Whether the parameter is a number of bytes.
    pub is_bytes: bool,
    /// Unit of the figures.
    pub unit: String,
    /// Whether more is better; otherwise less is better.
    pub more_is_better: bool,
    /// Machine, date and number of runs, as lines below the plot.
    pub conditions: Vec<String>,
    /// The lines; the first is Causeway's.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 88.0;
/// Distance between two lines of text.
const LINE: f64 = 16.0;
/// Smallest distance between two labels of the horizontal axis.
const LABEL: f64 = 46.0;
const COLOURS: [&str; 6] = ["#0969da", "#c8553d", "#2c7a4b", "#8250df", "#9a6700", "#57606a"];

impl Plot {
    /// Returns the plot as SVG; `None` if no series has two points, which make a line.
    pub fn svg(&self) -> Option<String> {
        let drawn: Vec<Series> = self.series.iter().map(valid).collect();
        let drawn: Vec<&Series> = drawn.iter().filter(|one| !one.points.is_empty()).collect();
        if drawn.iter().all(|one| one.points.len() < 2) {
            return None;
        }
        let points = || drawn.iter().flat_map(|one| one.points.iter());
        let frame = Frame {
            x: Axis::horizontal(points().map(|point| point.x)),
            y: Axis::vertical(points().flat_map(|point| [point.min, point.max])),
        };
        let mut out = self.head(&frame);
        self.grid(&frame, &mut out);
        // Causeway's line is drawn last, above the others.
        for (index, one) in drawn.iter().enumerate().rev() {
            line(&frame, index, one, &mut out);
        }
        labels(&frame, &drawn, &mut out);
        out.push_str("</svg>\n");
        Some(out)
    }

    /// Returns whether the vertical axis is logarithmic.
    pub fn differs_by_decades(&self) -> bool {
        let points = self.series.iter().flat_map(|one| valid(one).points);
        Axis::vertical(points.flat_map(|point| [point.min, point.max])).is_log()
    }

    /// Opens the document, with title, subtitle and conditions.
    fn head(&self, frame: &Frame) -> String {
        let better = if self.more_is_better { "higher is better" } else { "lower is better" };
        let scale = if frame.y.is_log() { "; logarithmic axis" } else { "" };
        let (title, unit) = (escaped(&self.title), escaped(&self.unit));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<title>{title}; {better}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\" fill=\"#1b1f24\">{title}</text>\n\
             <text x=\"16\" y=\"46\" font-size=\"14\" fill=\"#57606a\">{unit}; {better}{scale}</text>\n"
        );
        let first = HEIGHT - 10.0 - LINE * self.conditions.len().saturating_sub(1) as f64;
        for (number, text) in self.conditions.iter().enumerate() {
            let y = first + LINE * number as f64;
            let text = escaped(text);
            let _ = writeln!(out, "<text x=\"16\" y=\"{y:.0}\" fill=\"#57606a\">{text}</text>");
        }
        out
    }

    /// Draws grid lines and the labels of both axes.
    fn grid(&self, frame: &Frame, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in &frame.y.ticks {
            let at = frame.top(*tick);
            let label = number(*tick);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#d8dee4\"/><text x=\"{:.0}\" \
                 y=\"{:.1}\" text-anchor=\"end\" fill=\"#1b1f24\">{label}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        let mut last = f64::NEG_INFINITY;
        for tick in &frame.x.ticks {
            let at = frame.left(*tick);
            let _ = write!(out, "<path d=\"M{at:.1} {bottom}v5\" stroke=\"#57606a\"/>");
            if at - last >= LABEL {
                let label = if self.is_bytes { bytes(*tick) } else { number(*tick) };
                let y = bottom + 18.0;
                let _ = write!(
                    out,
                    "<text x=\"{at:.1}\" y=\"{y:.0}\" text-anchor=\"middle\" \
                     fill=\"#1b1f24\">{label}</text>"
                );
                last = at;
            }
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {bottom}H{right}\" stroke=\"#57606a\"/><text x=\"{:.0}\" \
             y=\"{:.0}\" text-anchor=\"middle\" fill=\"#1b1f24\">{}</text>",
            (LEFT + right) / 2.0,
            bottom + 36.0,
            escaped(&self.x_name)
        );
    }
}

/// The axes, in the coordinates of the image.
struct Frame {
    x: Axis,
    y: Axis,
}

impl Frame {
    fn left(&self, value: f64) -> f64 {
        LEFT + self.x.at(value) * (WIDTH - LEFT - RIGHT)
    }

    fn top(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.at(value) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Returns a series without points that no axis can show, in the order of the parameter.
fn valid(series: &Series) -> Series {
    let is_shown =
        |p: &Point| [p.x, p.min, p.y, p.max].iter().all(|value| value.is_finite() && *value > 0.0);
    let mut points: Vec<Point> = series.points.iter().copied().filter(is_shown).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    Series { name: series.name.clone(), points }
}

fn colour(index: usize) -> &'static str {
    COLOURS.get(index % COLOURS.len()).copied().unwrap_or("black")
}

/// Draws the line of a series, with whiskers and markers.
fn line(frame: &Frame, index: usize, series: &Series, out: &mut String) {
    let (colour, width) = (colour(index), if index == 0 { 3.0 } else { 1.8 });
    let place = |point: &Point| format!("{:.1},{:.1}", frame.left(point.x), frame.top(point.y));
    let path: Vec<String> = series.points.iter().map(place).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
        path.join(" ")
    );
    for point in &series.points {
        let (x, y) = (frame.left(point.x), frame.top(point.y));
        let (high, low) = (frame.top(point.max), frame.top(point.min));
        if low - high >= 1.0 {
            let _ = write!(
                out,
                "<path d=\"M{x:.1} {high:.1}V{low:.1}M{:.1} {high:.1}h8M{:.1} {low:.1}h8\" \
                 stroke=\"{colour}\" fill=\"none\"/>",
                x - 4.0,
                x - 4.0
            );
        }
        let _ = writeln!(out, "{}", marker(index, x, y));
    }
}

/// Returns the marker of a series: a disc, square, diamond or triangle.
fn marker(index: usize, x: f64, y: f64) -> String {
    let colour = colour(index);
    let path = match index % 4 {
        0 => return format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>"),
        1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
        2 => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", y - 5.5),
        _ => format!("M{x:.1} {:.1}l5.5 9.5h-11z", y - 6.0),
    };
    format!("<path d=\"{path}\" fill=\"{colour}\"/>")
}

/// Writes the names beside the ends of the lines, apart from each other.
fn labels(frame: &Frame, drawn: &[&Series], out: &mut String) {
    let ends = drawn.iter().enumerate();
    let mut places: Vec<(usize, f64, f64)> = ends
        .filter_map(|(index, one)| {
            let last = one.points.last()?;
            Some((index, frame.top(last.y), frame.top(last.y)))
        })
        .collect();
    places.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut free = f64::NEG_INFINITY;
    for (_, _, at) in &mut places {
        *at = at.max(free);
        free = *at + LINE;
    }
    // The last labels may have left the frame: all that touch move up.
    let mut end = HEIGHT - BOTTOM + LINE;
    for (_, _, at) in places.iter_mut().rev() {
        *at = at.min(end);
        end = *at - LINE;
    }
    for (index, _, at) in places {
        let Some(one) = drawn.get(index) else { continue };
        let x = WIDTH - RIGHT + 14.0;
        let weight = if index == 0 { " font-weight=\"bold\"" } else { "" };
        let (mark, colour) = (marker(index, x, at), colour(index));
        let (x, y, name) = (x + 12.0, at + 4.0, escaped(&one.name));
        let _ = writeln!(
            out,
            "{mark}<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\"{weight}>{name}</text>"
        );
    }
}

/// Returns a number of bytes with its binary prefix.
fn bytes(value: f64) -> String {
    match value {
        value if value >= 1_048_576.0 => format!("{} MiB", number(value / 1_048_576.0)),
        value if value >= 1024.0 && value % 1024.0 == 0.0 => {
            format!("{} KiB", number(value / 1024.0))
        }
        value => format!("{} B", number(value)),
    }
}

/// Returns a number without superfluous digits.
fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Returns a text for XML and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(f64, f64)]) -> Plot {
        let point = |&(x, y): &(f64, f64)| Point { x, min: y * 0.9, y, max: y * 1.1 };
        let ours = Series { name: "<ours>".into(), points: points.iter().map(point).collect() };
        Plot {
            title: "t & u".into(),
            x_name: "size".into(),
            is_bytes: true,
            unit: "us".into(),
            more_is_better: false,
            conditions: vec!["a machine".into()],
            series: vec![ours],
        }
    }

    #[test]
    fn plot_keeps_points_inside_and_omits_invalid_values() {
        let points = [(64.0, 0.5), (f64::NAN, 1.0), (65_536.0, 8.0), (4096.0, 0.0)];
        let text = plot(&points).svg().unwrap();
        let line = text.split("<polyline points=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.split(' ').count(), 2);
        for pair in line.split(' ') {
            let (x, y) = pair.split_once(',').unwrap();
            assert!((LEFT..=WIDTH - RIGHT).contains(&x.parse().unwrap()), "{line}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&y.parse().unwrap()), "{line}");
        }
    }

    #[test]
    fn plot_explains_itself_and_has_markers_and_spreads() {
        let text = plot(&[(64.0, 0.5), (1024.0, 0.7)]).svg().unwrap();
        for want in ["t &amp; u", "us; lower is better", "a machine", "&lt;ours&gt;", "1 KiB"] {
            assert!(text.contains(want), "{want} not in {text}");
        }
        assert_eq!(text.matches("<circle").count(), 3, "two points and the label");
        assert_eq!(text.matches("h8M").count(), 2, "a whisker for each point");
    }

    #[test]
    fn plot_without_a_line_is_not_drawn() {
        for points in [&[][..], &[(64.0, 0.5)], &[(64.0, 0.5), (128.0, f64::NAN)]] {
            assert!(plot(points).svg().is_none(), "{points:?}");
        }
    }
}
