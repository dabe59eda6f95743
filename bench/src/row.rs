//! A row: its measurement, its peers, and its aims.
//!
//! The modules of `rows` build [`Plan`]s, and `report` measures each into a [`Row`], which it
//! writes as JSON. A measurement is a function that returns a figure for each run, or the reason
//! why there is none; `rounds` asks for one run at a time. Ratios compare the figures of one round,
//! and are above 1 where Causeway is better; whether more or less is better follows from the unit.
//! A row names the kind of guest of Causeway's side ([`Guest`]). An aim is met or missed, or has no
//! figure where its peer is left out; a missed aim is no error. The JSON of a row is read again by
//! `progress`, for its time, and by people; a field that is added later is absent in files of
//! earlier runs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::effort::Effort;
use crate::rounds::{Measure, MeasureFloor, Requirements, Rounds, floor_us};
use crate::stats::Spread;

/// Driver of Causeway's side of a row. A row never mixes kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Guest {
    /// Processes of the host: the native front end, with rings and notifications as a guest's, a
    /// native driver, or an application (MX, MPI); no exits.
    #[serde(rename = "native front end")]
    Native,
    /// A virtual processor without a kernel: real memory slots, doorbells and exits.
    #[serde(rename = "bare KVM guest")]
    BareKvm,
    /// DPDK's virtio-user driver.
    #[serde(rename = "DPDK virtio-user")]
    VirtioUser,
    /// A QEMU machine with its own kernel's stack.
    #[serde(rename = "QEMU guest")]
    Qemu,
}

impl Guest {
    /// Returns the name in JSON and in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native front end",
            Self::BareKvm => "bare KVM guest",
            Self::VirtioUser => "DPDK virtio-user",
            Self::Qemu => "QEMU guest",
        }
    }
}

/// Reference of an aim.
#[derive(Debug, Clone, Copy)]
pub enum Against {
    /// Causeway's median, in the row's unit.
    Figure,
    /// The ratio to the peer of this name.
    Peer(&'static str),
}

/// An aim of a row.
#[derive(Debug, Clone, Copy)]
pub struct Aim {
    against: Against,
    wanted: f64,
}

/// An aim, and whether it is met.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Description of the aim.
    pub aim: String,
    /// The required figure.
    pub wanted: f64,
    /// The measured figure; `None` where the peer was not available.
    pub got: Option<f64>,
    /// Whether the aim is met.
    pub met: bool,
}

/// The floor around the figures of a row: half a round trip of a cache line between the two cores.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Floor {
    /// Unit of the floor.
    pub unit: &'static str,
    /// Before and after every figure of the rounds that count.
    #[serde(flatten)]
    pub spread: Spread,
}

/// A row as written to JSON.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Unique name.
    pub name: String,
    /// Unit of all figures.
    pub unit: &'static str,
    /// Driver of Causeway's side.
    pub guest: Guest,
    /// Whether more is better; otherwise less is better.
    pub more_is_better: bool,
    /// Causeway's figure.
    pub ours: Spread,
    /// The floor before and after each figure.
    pub floor: Floor,
    /// Rounds discarded because the floor moved in them.
    pub rounds_discarded: usize,
    /// Rounds that count although the floor moved: the limit of repetitions was reached. 0 for a
    /// row that accepts such rounds.
    pub rounds_unsteady: usize,
    /// The peers' figures.
    pub peers: BTreeMap<String, Spread>,
    /// Ratio of Causeway to each peer, the median of the rounds; above 1 means that Causeway is
    /// better.
    pub ratios: BTreeMap<String, f64>,
    /// Spread of the ratios over the rounds.
    pub ratio_spreads: BTreeMap<String, Spread>,
    /// Peers that failed, with the reason; figures of rounds before the failure are kept.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, String>,
    /// Results of the aims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aims: Vec<Verdict>,
    /// Note for the reader of the row.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
    /// Time of the measurement, in seconds.
    pub seconds: f64,
    /// Rounds, each with one run of every figure.
    pub runs: usize,
    /// Whether the runs were short, so that the figures are not representative.
    pub quick: bool,
    /// The row's plot, and its horizontal coordinate.
    #[serde(skip)]
    pub at: Option<(&'static str, f64)>,
}

/// A row to measure.
pub struct Plan {
    /// Unique name.
    pub name: String,
    unit: &'static str,
    guest: Guest,
    ours: Measure,
    peers: Vec<(&'static str, Measure)>,
    aims: Vec<Aim>,
    note: &'static str,
    at: Option<(&'static str, f64)>,
    required: Requirements,
}

/// Units of which less is better.
const LESS_IS_BETTER: [&str; 6] = ["us", "%", "MiB", "KiB", "ns", "messages"];

impl Plan {
    /// Creates a row that measures only `ours`.
    pub fn new(
        name: impl Into<String>,
        unit: &'static str,
        guest: Guest,
        ours: impl Fn(&Effort) -> Result<Vec<f64>, String> + 'static,
    ) -> Self {
        let (ours, name) = (Box::new(ours), name.into());
        let (peers, aims) = (Vec::new(), Vec::new());
        Self {
            name,
            unit,
            guest,
            ours,
            peers,
            aims,
            note: "",
            at: None,
            required: Requirements { steady: true, near: false },
        }
    }

    /// Adds a peer.
    pub fn beside(
        mut self,
        name: &'static str,
        peer: impl Fn(&Effort) -> Result<Vec<f64>, String> + 'static,
    ) -> Self {
        self.peers.push((name, Box::new(peer)));
        self
    }

    /// Adds an aim.
    pub fn aim(mut self, against: Against, wanted: f64) -> Self {
        self.aims.push(Aim { against, wanted });
        self
    }

    /// Accepts rounds in which the floor moved: for rounds so long that it moves in each.
    pub fn whatever_the_floor(self) -> Self {
        Self { required: Requirements { steady: false, ..self.required }, ..self }
    }

    /// Waits, within a limit, for cores that share a cache: for aims that are for such cores.
    pub fn near_cores(self) -> Self {
        Self { required: Requirements { near: true, ..self.required }, ..self }
    }

    /// Adds a note for the reader.
    pub fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    /// Adds the row to a plot.
    pub fn at(mut self, plot: &'static str, x: usize) -> Self {
        self.at = Some((plot, x as f64));
        self
    }

    /// Measures the row; the error is the reason for its absence.
    pub fn measure(&self, effort: &Effort) -> Result<Row, String> {
        self.measure_above(floor_us, effort)
    }

    /// As [`Self::measure`], with another measurement of the floor.
    fn measure_above(&self, floor: MeasureFloor, effort: &Effort) -> Result<Row, String> {
        let more = !LESS_IS_BETTER.contains(&self.unit);
        let better = |ours: f64, peer: f64| if more { ours / peer } else { peer / ours };
        let rounds = Rounds::make(floor, effort, self.required, &self.ours, &self.peers, better)?;
        Ok(self.row(rounds))
    }

    fn row(&self, rounds: Rounds) -> Row {
        let more_is_better = !LESS_IS_BETTER.contains(&self.unit);
        let (ours, ratio_spreads) = (rounds.ours(), rounds.ratios());
        let ratios: BTreeMap<String, f64> =
            ratio_spreads.iter().map(|(name, spread)| (name.clone(), spread.median)).collect();
        let verdict = |aim: &Aim| {
            let (name, got) = match aim.against {
                Against::Figure => (self.unit, Some(ours.median)),
                Against::Peer(name) => (name, ratios.get(name).copied()),
            };
            let wanted = aim.wanted;
            let least = more_is_better || matches!(aim.against, Against::Peer(_));
            let words = match (aim.against, least) {
                (Against::Peer(_), _) => format!(">= {wanted} x {name}"),
                (Against::Figure, true) => format!(">= {wanted} {name}"),
                (Against::Figure, false) => format!("<= {wanted} {name}"),
            };
            let met = got.is_some_and(|got| if least { got >= wanted } else { got <= wanted });
            Verdict { aim: words, wanted, got, met }
        };
        let aims = self.aims.iter().map(verdict).collect();
        Row {
            name: self.name.clone(),
            unit: self.unit,
            guest: self.guest,
            more_is_better,
            ours,
            floor: Floor { unit: "us", spread: rounds.floors() },
            rounds_discarded: rounds.discarded,
            rounds_unsteady: rounds.unsteady,
            peers: rounds.peers(),
            ratios,
            ratio_spreads,
            left_out: rounds.left_out,
            aims,
            note: self.note,
            seconds: 0.0,
            runs: 0,
            quick: false,
            at: self.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &'static str, ours: f64, peer: f64, against: Against, wanted: f64) -> Row {
        let plan = Plan::new("a row", unit, Guest::Native, move |_| Ok(vec![ours]));
        let plan = plan.beside("peer", move |_| Ok(vec![peer])).aim(against, wanted);
        let plan = plan.beside("gone", |_| Err("it is not installed".into()));
        plan.measure_above(|| 0.05, &Effort { runs: 1, quick: true }).unwrap()
    }

    #[test]
    fn row_ratios_and_aims_follow_the_unit() {
        let rate = row("Mpps", 6.0, 3.0, Against::Peer("peer"), 2.0);
        assert_eq!(rate.ratios["peer"], 2.0);
        assert!(rate.aims[0].met && rate.left_out.contains_key("gone"));
        let delay = row("us", 6.0, 3.0, Against::Peer("peer"), 1.0);
        assert_eq!(delay.ratios["peer"], 0.5);
        assert!(!delay.aims[0].met);
        assert!(row("us", 1.0, 3.0, Against::Figure, 1.5).aims[0].met);
        assert!(!row("GB/s", 1.0, 3.0, Against::Figure, 1.5).aims[0].met);
        // An aim against a missing peer is neither met nor missed.
        let open = row("us", 1.0, 3.0, Against::Peer("gone"), 1.0);
        assert!(open.aims[0].got.is_none() && !open.aims[0].met);
    }
}
