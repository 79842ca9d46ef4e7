//! Tables and figures as data.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::failure::{Failure, with_causes};

/// The files of `experiments/`, by name.
const FILES: [(&str, &str); 5] = [
    ("eh-fig9c.toml", include_str!("../../../../experiments/eh-fig9c.toml")),
    ("eh-tab2.toml", include_str!("../../../../experiments/eh-tab2.toml")),
    ("eh-tab3.toml", include_str!("../../../../experiments/eh-tab3.toml")),
    ("eh-tab4.toml", include_str!("../../../../experiments/eh-tab4.toml")),
    ("eh-tab5.toml", include_str!("../../../../experiments/eh-tab5.toml")),
];

/// How rows are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Method {
    /// The papers' schedule, block by block.
    Blocks,
    /// Made traffic through a pipeline, cycle by cycle.
    Flushes,
    /// Formulas and a simulation for flows by Zipf's law.
    Zipf,
}

/// A table or a figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    /// What users type.
    pub(super) id: String,
    /// What it shows.
    pub(super) title: String,
    /// Where it is printed.
    pub(super) source: String,
    pub(super) method: Method,
    /// The method, for people.
    pub(super) how: String,
    /// What a row is, for people.
    #[serde(default = "program")]
    pub(super) rows_are: String,
    /// The columns.
    #[serde(rename = "value")]
    pub(super) values: Vec<Value>,
    #[serde(rename = "row")]
    pub(super) rows: Vec<Row>,
}

/// A column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Value {
    /// Its name in [`Row::paper`] and in JSON.
    pub(super) name: String,
    /// Its name for people.
    pub(super) title: String,
    /// Which of the method's values is ours.
    pub(super) measure: String,
    /// How many digits are printed behind the point.
    pub(super) digits: usize,
    /// How far off ours may be, as a part of that in print.
    pub(super) tolerance: Option<f64>,
}

/// A row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    /// The program's file, in the folder of functions, where it is about one.
    pub(super) program: Option<String>,
    /// The values in print.
    #[serde(default)]
    pub(super) paper: BTreeMap<String, f64>,
    /// What else the paper gives, to compute with.
    #[serde(default)]
    pub(super) given: BTreeMap<String, f64>,
    /// Parameters of the program.
    #[serde(default)]
    pub(super) params: BTreeMap<String, String>,
    /// The traffic, by the name of its profile.
    pub(super) traffic: Option<String>,
    /// Whether all packets have the same key.
    #[serde(default)]
    pub(super) one_flow: bool,
    /// The map that matters.
    pub(super) map: Option<String>,
    /// Why the row differs from print.
    pub(super) note: Option<String>,
}

impl Row {
    /// A whole number that the paper gives.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.given.get(name).or_else(|| self.paper.get(name)).map(|number| *number as u32)
    }
}

fn program() -> String {
    "program".to_owned()
}

/// All of them, by id.
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
    use crate::reproduce::{blocks, flushes, zipf};

    #[test]
    fn every_file_is_known_and_says_what_can_be_measured() {
        let mut files: Vec<String> = std::fs::read_dir("../../experiments")
            .unwrap()
            .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        assert_eq!(files, FILES.map(|(name, _)| name));
        for (experiment, (file, _)) in all().unwrap().iter().zip(FILES) {
            assert_eq!(format!("{}.toml", experiment.id), file);
            let measures = match experiment.method {
                Method::Blocks => blocks::MEASURES,
                Method::Flushes => flushes::MEASURES,
                Method::Zipf => zipf::MEASURES,
            };
            for value in &experiment.values {
                assert!(measures.contains(&value.measure.as_str()), "{file}: {}", value.measure);
            }
            for row in &experiment.rows {
                let known = |name: &String| experiment.values.iter().any(|value| value.name == *name);
                assert!(row.paper.keys().all(known), "{file}: {}", row.name);
                if let Some(program) = &row.program {
                    assert!(std::path::Path::new("../../functions").join(program).is_file(), "{program}");
                }
                let is_profile = |name: &String| flowloom_trace::Profile::ALL.iter().any(|known| known.name() == name);
                assert!(row.traffic.as_ref().is_none_or(is_profile), "{file}: {}", row.name);
            }
        }
    }
}
