// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of tables: measured values as bars, beside the values to compare with.

use super::chart::Panel;
use super::experiment::{Experiment, Row, Value};
use super::measured::Measured;
use super::{Pair, number};

/// Title of the panel of a value in a row.
fn title(row: &Row, value: &Value) -> String {
    let value = value.panel.as_ref().unwrap_or(&value.title);
    row.panel.as_ref().map_or_else(|| value.clone(), |row| format!("{row}: {value}"))
}

/// Name of a row within its panel.
fn group(row: &Row) -> &str {
    let panel = row.panel.as_deref().unwrap_or_default();
    row.name.strip_prefix(panel).and_then(|rest| rest.strip_prefix(", ")).unwrap_or(&row.name)
}

/// The panels of a table: rows of a panel are groups, its values are series.
pub(super) fn panels(experiment: &Experiment, rows: &[Measured]) -> Vec<Panel> {
    // Titles of values may be equal, names are not.
    let mut keys: Vec<(Option<&str>, &str)> = Vec::new();
    let mut panels: Vec<Panel> = Vec::new();
    for (row, measured) in experiment.rows.iter().zip(rows) {
        for value in &experiment.values {
            let key = (row.panel.as_deref(), value.panel.as_ref().unwrap_or(&value.name).as_str());
            let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                panels.push(Panel { title: title(row, value), ..Panel::default() });
                panels.len() - 1
            });
            let panel = &mut panels[at];
            if panel.groups.last().map(String::as_str) != Some(group(row)) {
                panel.groups.push(group(row).to_owned());
            }
            let last = panel.groups.len() - 1;
            let Pair { paper, ours, .. } = Pair::of(value, row, measured);
            let reference = format!("{}: {}", experiment.compared_with.name(), value.title);
            for (name, found) in [(value.title.clone(), ours), (reference, paper)] {
                // The printed digits, so that a figure does not change with the last bit.
                let Some(found) = found.and_then(|found| number(Some(found), value.digits).parse().ok()) else {
                    continue;
                };
                let at = panel.series.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                    panel.series.push((name, Vec::new()));
                    panel.series.len() - 1
                });
                panel.series[at].1.resize(last, None);
                panel.series[at].1.push(Some(found));
            }
        }
    }
    panels
}
