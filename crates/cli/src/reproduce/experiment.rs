// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables and figures as data.

use std::collections::BTreeMap;

use flowloom_trace::Profile;
use serde::Deserialize;

use crate::failure::{Failure, with_causes};

/// The files of `experiments/`, by name.
const FILES: [(&str, &str); 14] = [
    ("dp-fig.toml", include_str!("../../../../experiments/dp-fig.toml")),
    ("eh-fig9c.toml", include_str!("../../../../experiments/eh-fig9c.toml")),
    ("eh-tab2.toml", include_str!("../../../../experiments/eh-tab2.toml")),
    ("eh-tab3.toml", include_str!("../../../../experiments/eh-tab3.toml")),
    ("eh-tab4.toml", include_str!("../../../../experiments/eh-tab4.toml")),
    ("eh-tab5.toml", include_str!("../../../../experiments/eh-tab5.toml")),
    ("fb-fig10a.toml", include_str!("../../../../experiments/fb-fig10a.toml")),
    ("fb-fig10b.toml", include_str!("../../../../experiments/fb-fig10b.toml")),
    ("fb-fig11.toml", include_str!("../../../../experiments/fb-fig11.toml")),
    ("fb-fig12.toml", include_str!("../../../../experiments/fb-fig12.toml")),
    ("fb-fig7.toml", include_str!("../../../../experiments/fb-fig7.toml")),
    ("fb-fig8.toml", include_str!("../../../../experiments/fb-fig8.toml")),
    ("fb-fig9.toml", include_str!("../../../../experiments/fb-fig9.toml")),
    ("fb-left.toml", include_str!("../../../../experiments/fb-left.toml")),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Method {
    /// The papers' schedule, block by block.
    Blocks,
    /// Insertions of random keys until one finds no place.
    Fill,
    /// Rates on this machine, by the number of flows.
    FlowRates,
    /// Cycle-by-cycle simulation of a pipeline on generated traffic.
    Flushes,
    /// A machine at line rate, on generated traffic.
    Line,
    /// Rates on this machine, over interfaces.
    LiveRates,
    /// Insertions of random keys into a cuckoo table.
    Moves,
    /// Round-trip times on this machine.
    RoundTrips,
    /// Occupancy of a cuckoo table's stash on generated traffic.
    Stash,
    /// Formulas and a simulation for Zipf-distributed flows.
    Zipf,
}

impl Method {
    /// True if this machine is measured: claims, but no values, are in print.
    pub(super) fn is_on_this_machine(self) -> bool {
        matches!(self, Method::FlowRates | Method::LiveRates | Method::RoundTrips)
    }
}

/// What measured values are compared with.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reference {
    /// Numbers in print.
    #[default]
    Paper,
    /// An analysis of ours, where the paper has a plot without numbers.
    Analysis,
}

impl Reference {
    /// Key in JSON and column title.
    pub(super) fn name(self) -> &'static str {
        match self {
            Reference::Paper => "paper",
            Reference::Analysis => "analysis",
        }
    }
}

/// A table or a figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    /// Id on the command line.
    pub(super) id: String,
    pub(super) title: String,
    /// Citation.
    pub(super) source: String,
    pub(super) method: Method,
    /// Description of the method.
    pub(super) how: String,
    /// What the values are compared with.
    #[serde(default)]
    pub(super) compared_with: Reference,
    /// Noun for a row.
    #[serde(default = "program")]
    pub(super) rows_are: String,
    /// The columns.
    #[serde(default, rename = "value")]
    pub(super) values: Vec<Value>,
    #[serde(default, rename = "row")]
    pub(super) rows: Vec<Row>,
    /// Statements of the paper, for figures that are measured on this machine.
    #[serde(default, rename = "claim")]
    pub(super) claims: Vec<Claim>,
}

/// A statement of the paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    /// Key of the measured counterpart.
    pub(super) name: String,
    pub(super) text: String,
}

/// A column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Value {
    /// Key in [`Row::paper`] and in JSON.
    pub(super) name: String,
    pub(super) title: String,
    /// Key of the method's value that is compared.
    pub(super) measure: String,
    /// Number of printed decimal places.
    pub(super) digits: usize,
    /// Tolerance, relative to the printed value.
    pub(super) tolerance: Option<f64>,
    /// If set, the printed value is an upper limit: a smaller one is as good.
    #[serde(default)]
    pub(super) is_limit: bool,
    /// Title of the panel that the column shares with others in the figure; else it has its own.
    pub(super) panel: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    /// Panel of the row in the figure, of which its name may be the beginning, with a comma.
    pub(super) panel: Option<String>,
    /// Program file, in the folder of functions, if the row has one.
    pub(super) program: Option<String>,
    /// Values to compare with, by column.
    #[serde(default, alias = "analysis")]
    pub(super) paper: BTreeMap<String, f64>,
    /// Other numbers from the paper, as inputs.
    #[serde(default)]
    pub(super) given: BTreeMap<String, f64>,
    #[serde(default)]
    pub(super) params: BTreeMap<String, String>,
    /// Name of the traffic profile.
    pub(super) traffic: Option<String>,
    /// If set, all packets have the same key.
    #[serde(default)]
    pub(super) one_flow: bool,
    /// If set, the method's effect must show in this row: a flow is refused.
    #[serde(default)]
    pub(super) is_control: bool,
    /// Name of the measured map.
    pub(super) map: Option<String>,
    /// Reason for differences from print.
    pub(super) note: Option<String>,
}

impl Row {
    /// Returns an integer from the paper.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.given.get(name).or_else(|| self.paper.get(name)).map(|number| *number as u32)
    }

    /// Returns an integer that the method needs.
    pub(super) fn needed(&self, name: &str) -> Result<u32, Failure> {
        self.number(name).filter(|number| *number > 0).ok_or_else(|| self.lacks(&format!("number `{name}` above 0")))
    }

    /// Returns the profile of the traffic.
    pub(super) fn profile(&self) -> Result<Profile, Failure> {
        self.traffic.as_deref().and_then(Profile::by_name).ok_or_else(|| self.lacks("traffic"))
    }

    /// The error for a value that the method needs.
    pub(super) fn lacks(&self, what: &str) -> Failure {
        Failure::Input(format!("row `{}` names no {what}", self.name))
    }
}

fn program() -> String {
    "program".to_owned()
}

/// Parses all experiments, sorted by id.
pub(super) fn all() -> Result<Vec<Experiment>, Failure> {
    let read = |(name, text): (&str, &str)| {
        toml::from_str(text).map_err(|error| Failure::Input(format!("`experiments/{name}`: {}", with_causes(&error))))
    };
    FILES.into_iter().map(read).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_known_and_names_measures_programs_and_traffic_that_exist() {
        let mut files: Vec<String> = std::fs::read_dir("../../experiments")
            .unwrap()
            .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        assert_eq!(files, FILES.map(|(name, _)| name));
        for (experiment, (file, _)) in all().unwrap().iter().zip(FILES) {
            assert_eq!(format!("{}.toml", experiment.id), file);
            // A method inserts its measures as literals; a literal before a colon is a key of JSON.
            let method = match experiment.method {
                Method::Blocks => include_str!("blocks.rs"),
                Method::Fill => include_str!("fill.rs"),
                Method::FlowRates => include_str!("lab/flow_rates.rs"),
                Method::Flushes => include_str!("flushes.rs"),
                Method::Line => include_str!("line.rs"),
                Method::LiveRates => include_str!("lab/live_rates.rs"),
                Method::RoundTrips => include_str!("lab/round_trips.rs"),
                Method::Moves => include_str!("moves.rs"),
                Method::Stash => include_str!("stash.rs"),
                Method::Zipf => include_str!("zipf.rs"),
            };
            assert_ne!(experiment.claims.is_empty(), experiment.method.is_on_this_machine(), "{file}");
            assert_ne!(experiment.values.is_empty(), !experiment.method.is_on_this_machine(), "{file}");
            for Claim { name, .. } in &experiment.claims {
                assert!(method.contains(&format!("\"{name}\", ")), "{file}: {name}");
            }
            for Value { measure, .. } in &experiment.values {
                let literal = format!("\"{measure}\"");
                let is_inserted = method.split(&literal).skip(1).any(|after| !after.starts_with(':'));
                assert!(is_inserted, "{file}: {measure}");
            }
            for row in &experiment.rows {
                let known = |name: &String| experiment.values.iter().any(|value| value.name == *name);
                assert!(row.paper.keys().all(known), "{file}: {}", row.name);
                if let Some(program) = &row.program {
                    assert!(std::path::Path::new("../../functions").join(program).is_file(), "{program}");
                }
                let is_profile = |name: &String| Profile::ALL.iter().any(|known| known.name() == name);
                assert!(row.traffic.as_ref().is_none_or(is_profile), "{file}: {}", row.name);
            }
        }
    }
}
