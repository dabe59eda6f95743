//! Metrics as text: OpenMetrics 1.0, and the older text format of Prometheus (0.0.4).
//!
//! A [`MetricSet`] collects samples by family, so that the samples of a family stand together
//! whatever the order of their addition. Both formats have the same samples and differ in the lines
//! about a family: OpenMetrics names a counter without `_total`, has units, and ends with `# EOF`.
//! Label values are escaped. A set has no limit; its caller bounds the number of objects.
//!
//! The first sample of a name decides the type and the help text of the family. The caller gives
//! names and labels that the formats permit, counters that end with `_total`, and each combination
//! of name and labels once: none of these is checked, and a second sample becomes a second line.
//!
//! The encoder is our own because names and labels follow from the counters of services, and
//! because programs without content negotiation (curl, `promtool check metrics`) expect the older
//! format, which the crate `prometheus-client` does not write.
//!
//! [`super::families`] adds samples and [`super::Metrics`] encodes, in the thread of a connection.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

/// Words that are units if they are the last of a name.
const UNITS: [&str; 8] =
    ["bytes", "seconds", "ratio", "packets", "frames", "messages", "datagrams", "requests"];

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// A sum that only grows; its name ends with `_total`.
    Counter,
    /// A value.
    Gauge,
    /// Numbers of observations up to bounds.
    Histogram,
}

impl MetricType {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The text format of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus 0.0.4.
    Prometheus,
}

impl TextFormat {
    /// Returns the format that the value of an `Accept` header asks for.
    pub fn accepted(accept: &str) -> Self {
        let is_wanted = |part: &str| part.trim_start().starts_with("application/openmetrics-text");
        if accept.split(',').any(is_wanted) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the type of the reply's content.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Label names and values of a sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The samples of one name.
#[derive(Debug, Clone)]
struct Family {
    kind: MetricType,
    help: String,
    /// Lines of samples.
    samples: String,
}

/// Metrics by family.
#[derive(Debug, Clone, Default)]
pub struct MetricSet(BTreeMap<String, Family>);

impl MetricSet {
    /// Returns the family `name`; `help` is used if the family is new.
    fn family(
        &mut self,
        name: &str,
        kind: MetricType,
        help: impl FnOnce() -> String,
    ) -> &mut Family {
        let make = || Family { kind, help: help(), samples: String::new() };
        self.0.entry(name.to_owned()).or_insert_with(make)
    }

    /// Adds a sample of a counter or a gauge.
    pub fn add(
        &mut self,
        (name, kind): (&str, MetricType),
        help: impl FnOnce() -> String,
        labels: Labels<'_>,
        value: impl Display,
    ) {
        let family = self.family(name, kind, help);
        sample(&mut family.samples, (name, ""), labels, value);
    }

    /// Adds a histogram. `buckets` are upper bounds and numbers of observations up to each, `count`
    /// is the number of all observations and `sum` their sum.
    pub fn add_histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        buckets: &[(f64, u64)],
        (count, sum): (u64, f64),
    ) {
        let family = self.family(name, MetricType::Histogram, || help.to_owned());
        let out = &mut family.samples;
        let bounds = buckets.iter().map(|(bound, number)| (bound.to_string(), *number));
        for (bound, number) in bounds.chain([("+Inf".to_owned(), count)]) {
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            sample(out, (name, "_bucket"), &labels, number);
        }
        sample(out, (name, "_count"), labels, count);
        sample(out, (name, "_sum"), labels, sum);
    }

    /// Returns the names of the families; those of counters end with `_total`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the text of the metrics.
    pub fn encode(&self, format: TextFormat) -> String {
        let samples: usize = self.0.values().map(|family| family.samples.len()).sum();
        let mut out =
            String::with_capacity(samples.saturating_add(self.0.len().saturating_mul(256)));
        for (name, family) in &self.0 {
            let Family { kind, help, samples } = family;
            let base = name.strip_suffix("_total").unwrap_or(name);
            let stated = if format == TextFormat::OpenMetrics { base } else { name };
            let _ = writeln!(out, "# HELP {stated} {}", escape_help(help));
            let _ = writeln!(out, "# TYPE {stated} {}", kind.name());
            let unit = UNITS.into_iter().find(|unit| base.ends_with(&format!("_{unit}")));
            if let (Some(unit), TextFormat::OpenMetrics) = (unit, format) {
                let _ = writeln!(out, "# UNIT {stated} {unit}");
            }
            out.push_str(samples);
        }
        if format == TextFormat::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

/// Appends the line of a sample.
fn sample(out: &mut String, (name, suffix): (&str, &str), labels: Labels<'_>, value: impl Display) {
    out.push_str(name);
    out.push_str(suffix);
    for (index, (label, value)) in labels.iter().enumerate() {
        let _ = write!(out, "{}{label}=\"", if index == 0 { '{' } else { ',' });
        escape_label(out, value);
        out.push('"');
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

/// Appends the value of a label, escaped.
fn escape_label(out: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

/// Returns a help text, escaped for both formats.
fn escape_help(help: &str) -> String {
    help.replace('\\', "\\\\").replace('"', "'").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> MetricSet {
        let mut set = MetricSet::default();
        let counter = ("a_bytes_total", MetricType::Counter);
        set.add(counter, || "Bytes.".into(), &[("port", "x\"y\\z\nq")], 7);
        set.add(("b", MetricType::Gauge), || "A value.".into(), &[], 1.5);
        set.add(counter, || "not used".into(), &[("port", "second")], 8);
        let buckets = [(0.001, 2), (0.01, 3)];
        set.add_histogram("c_seconds", "Times.", &[("n", "0")], &buckets, (4, 0.5));
        set
    }

    #[test]
    fn metrics_text_has_families_together_and_escaped_labels() {
        let text = set().encode(TextFormat::OpenMetrics);
        let expected = r#"# HELP a_bytes Bytes.
# TYPE a_bytes counter
# UNIT a_bytes bytes
a_bytes_total{port="x\"y\\z\nq"} 7
a_bytes_total{port="second"} 8
# HELP b A value.
# TYPE b gauge
b 1.5
# HELP c_seconds Times.
# TYPE c_seconds histogram
# UNIT c_seconds seconds
c_seconds_bucket{n="0",le="0.001"} 2
c_seconds_bucket{n="0",le="0.01"} 3
c_seconds_bucket{n="0",le="+Inf"} 4
c_seconds_count{n="0"} 4
c_seconds_sum{n="0"} 0.5
# EOF
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn metrics_text_of_prometheus_names_counters_with_total() {
        let text = set().encode(TextFormat::Prometheus);
        assert!(text.starts_with("# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_"));
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn metrics_format_follows_the_accept_header() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        assert_eq!(TextFormat::accepted(prometheus), TextFormat::OpenMetrics);
        assert_eq!(TextFormat::accepted("*/*"), TextFormat::Prometheus);
        assert_eq!(TextFormat::accepted(""), TextFormat::Prometheus);
    }
}
