//! Tables and figures as data.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::failure::{Failure, with_causes};

/// The files of `experiments/`, by name.
const FILES: [(&str, &str); 2] = [
    ("eh-fig9c.toml", include_str!("../../../../experiments/eh-fig9c.toml")),
    ("eh-tab5.toml", include_str!("../../../../experiments/eh-tab5.toml")),
];

/// How rows are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Method {
    /// The papers' schedule, block by block.
    Blocks,
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
    /// The program's file, in the folder of functions.
    pub(super) program: String,
    /// The values in print.
    #[serde(default)]
    pub(super) paper: BTreeMap<String, f64>,
    /// Parameters of the program.
    #[serde(default)]
    pub(super) params: BTreeMap<String, String>,
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
    use crate::reproduce::blocks;

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
            };
            for value in &experiment.values {
                assert!(measures.contains(&value.measure.as_str()), "{file}: {}", value.measure);
            }
            for row in &experiment.rows {
                let known = |name: &String| experiment.values.iter().any(|value| value.name == *name);
                assert!(row.paper.keys().all(known), "{file}: {}", row.name);
                assert!(std::path::Path::new("../../functions").join(&row.program).is_file(), "{}", row.program);
            }
        }
    }
}
