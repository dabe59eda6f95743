//! Results of steps, as the matrix stores them.
//!
//! [`super::Steps`] makes a [`Step`] of each program that it runs, and the matrix of boots, kills
//! and unplugs; tests fail on a failed step, and the matrix stores all of them as JSON and prints
//! them on its page. A program that [`super::Steps::omit`] names is *unavailable* and no failure;
//! any other program that the guest lacks is a failed step. A failed step of an earlier run stays
//! in its file until the unit runs again. The fields are the format of the stored files: a file of
//! another format counts as no result (`store` of the matrix).

use serde::{Deserialize, Serialize};

/// Result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All checks of the step hold.
    Passed,
    /// A check failed, or a program did; with the reason.
    Failed(String),
    /// The guest's kernel or user space has not the program; with the reason.
    Unavailable(String),
}

/// A step and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Command line of the program, or name of the exchange.
    pub name: String,
    /// Its result.
    pub outcome: Outcome,
    /// Its time.
    pub seconds: f32,
}

impl Step {
    /// Returns whether the step failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    /// Returns the line that reports the step, with the reason of a failure below it.
    #[must_use]
    pub fn report(&self) -> String {
        let Self { name, outcome, seconds } = self;
        match outcome {
            Outcome::Passed => format!("passed {seconds:5.1} s  {name}"),
            Outcome::Failed(why) => format!("FAILED {seconds:5.1} s  {name}\n{why}"),
            Outcome::Unavailable(why) => format!("not available   {name}: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_step_keeps_its_reason_through_json() {
        for outcome in
            [Outcome::Passed, Outcome::Failed("x".into()), Outcome::Unavailable("y".into())]
        {
            let step = Step { name: "ping".into(), outcome, seconds: 0.5 };
            let text = serde_json::to_string(&step).unwrap();
            assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
        }
    }
}
