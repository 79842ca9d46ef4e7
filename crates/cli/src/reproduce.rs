// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom reproduce`: measures a table or figure of a paper and compares it with the printed numbers.
//!
//! Each table is a file in `experiments/`: printed numbers, programs, method and tolerances. A [`Method`] has its own
//! module here, which returns for each row the values that the file names.

mod blocks;
mod chart;
mod experiment;
mod figure;
mod fill;
mod flushes;
mod lab;
mod line;
mod measured;
mod moves;
mod pipelines;
mod program;
mod stash;
mod zipf;

use serde_json::{Value as Json, json};

use crate::args::ReproduceArgs;
use crate::failure::Failure;
use crate::files::Files;
use crate::output::{print, print_json, quoted, table};
use experiment::{Experiment, Method, Row, Value, all};
use line::Traces;
use measured::Measured;

/// A measured value and the printed one.
struct Pair {
    paper: Option<f64>,
    ours: Option<f64>,
    tolerance: Option<f64>,
    is_limit: bool,
}

impl Pair {
    fn of(value: &Value, row: &Row, measured: &Measured) -> Pair {
        let ours = measured.values.get(value.measure.as_str()).copied();
        Pair { paper: row.paper.get(&value.name).copied(), ours, tolerance: value.tolerance, is_limit: value.is_limit }
    }

    /// Relative difference of our value from the printed one.
    fn difference(&self) -> Option<f64> {
        let (paper, ours) = (self.paper?, self.ours?);
        (paper != 0.0).then(|| ours / paper - 1.0)
    }

    fn is_off(&self) -> bool {
        if self.is_limit {
            let limit = self.paper.map(|paper| paper * (1.0 + self.tolerance.unwrap_or(0.0)));
            return self.ours.zip(limit).is_some_and(|(ours, limit)| ours > limit);
        }
        self.difference().zip(self.tolerance).is_some_and(|(difference, most)| difference.abs() > most)
    }
}

pub(crate) fn reproduce(args: &ReproduceArgs) -> Result<(), Failure> {
    let experiments = all()?;
    let Some(id) = &args.id else { return list(&experiments, args.json) };
    let Some(experiment) = experiments.iter().find(|experiment| experiment.id == *id) else {
        let known = quoted(experiments.iter().map(|known| &known.id));
        return Err(Failure::Input(format!("unknown table or figure `{id}`, expected one of {known}")));
    };
    Files::default().writes("-o", args.output.as_ref()).check()?;
    if experiment.method.is_on_this_machine() {
        return lab::run(experiment, args);
    }
    if let Some(option) = args.lab.given().first() {
        return Err(Failure::Input(format!(
            "{option}: `{id}` is not measured on this machine; the option is for {}",
            quoted(experiments.iter().filter(|known| known.method.is_on_this_machine()).map(|known| &known.id))
        )));
    }
    let mut traces = Traces::default();
    let mut rows = Vec::new();
    for row in &experiment.rows {
        rows.push(match experiment.method {
            Method::Blocks => blocks::measure(row, &args.functions)?,
            Method::Fill => fill::measure(row)?,
            Method::Flushes => flushes::measure(row, &args.functions)?,
            Method::Line => line::measure(row, &mut traces)?,
            Method::Moves => moves::measure(row)?,
            Method::Stash => stash::measure(row)?,
            Method::Zipf => zipf::measure(row, &args.functions)?,
            Method::FlowRates | Method::LiveRates | Method::RoundTrips => Measured::default(),
        });
    }
    if args.json {
        print_json(&as_json(experiment, &rows))?;
    } else {
        print(&text(experiment, &rows, args.verbose))?;
    }
    if let Some(path) = &args.output {
        let title = format!("{}: {}", experiment.id, experiment.title);
        chart::write(path, &title, &figure::panels(experiment, &rows))?;
    }
    let pairs = experiment.rows.iter().zip(&rows);
    let mut pairs = pairs.flat_map(|(row, measured)| experiment.values.iter().map(|v| Pair::of(v, row, measured)));
    if pairs.any(|pair| pair.is_off()) || rows.iter().any(|row| row.failed.is_some()) {
        Err(Failure::Finding)
    } else {
        Ok(())
    }
}

fn list(experiments: &[Experiment], is_json: bool) -> Result<(), Failure> {
    if is_json {
        let all =
            experiments.iter().map(|known| json!({ "id": known.id, "title": known.title, "source": known.source }));
        return print_json(&all.collect());
    }
    let rows: Vec<Vec<String>> =
        experiments.iter().map(|known| vec![known.id.clone(), known.title.clone(), known.source.clone()]).collect();
    print(&table(&["id", "what", "source"], &rows, &[]))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn text(experiment: &Experiment, rows: &[Measured], verbose: bool) -> String {
    let mut header = vec![experiment.rows_are.clone()];
    for value in &experiment.values {
        // A value that is not in print has a single column.
        if experiment.rows.iter().any(|row| row.paper.contains_key(&value.name)) {
            header.extend([
                format!("{}: {}", value.title, experiment.compared_with.name()),
                "ours".to_owned(),
                "off by".to_owned(),
            ]);
        } else {
            header.push(value.title.clone());
        }
    }
    let (mut lines, mut notes, mut reasons) = (Vec::new(), String::new(), String::new());
    for (row, measured) in experiment.rows.iter().zip(rows) {
        let mut line = vec![row.name.clone()];
        let mut is_off = measured.failed.is_some();
        for value in &experiment.values {
            let pair = Pair::of(value, row, measured);
            is_off |= pair.is_off();
            if experiment.rows.iter().any(|row| row.paper.contains_key(&value.name)) {
                let percent = pair.difference().map(|difference| 100.0 * difference);
                let mark = if pair.is_off() { "!" } else { "" };
                let off = percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.0}%{mark}"));
                line.extend([number(pair.paper, value.digits), number(pair.ours, value.digits), off]);
            } else {
                line.push(number(pair.ours, value.digits));
            }
        }
        lines.push(line);
        if let Some(note) = note(row, measured) {
            notes.push_str(&format!("\n{}: {note}\n", row.name));
        }
        if verbose || is_off {
            let program = row.program.as_ref().map_or_else(String::new, |program| format!(" ({program})"));
            reasons.push_str(&format!("\n{}{program}:\n{}", row.name, measured.reasons));
        }
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let right: Vec<usize> = (1..header.len()).collect();
    let tolerances = experiment.values.iter().filter_map(|value| match (value.tolerance, value.is_limit) {
        (Some(most), false) => Some(format!("{} {:.0}%", value.title, 100.0 * most)),
        (None, true) => Some(format!("{} at most the paper's", value.title)),
        (Some(most), true) => Some(format!("{} at most {:.0}% above the paper's", value.title, 100.0 * most)),
        (None, false) => None,
    });
    let tolerances: Vec<String> = tolerances.collect();
    let tolerances = match tolerances.len() {
        0 => "none, so no value is judged".to_owned(),
        some if some < experiment.values.len() => format!("{}; the others are not judged", tolerances.join(", ")),
        _ => tolerances.join(", "),
    };
    format!(
        "{}: {}\npaper: {}\nmethod: {}\ntolerance: {tolerances}\n\n{}{notes}{reasons}",
        experiment.id,
        experiment.title,
        experiment.source,
        experiment.how.trim(),
        table(&header, &lines, &right)
    )
}

/// Reasons why a row differs from print or lacks values.
fn note(row: &Row, measured: &Measured) -> Option<String> {
    let notes: Vec<&str> =
        row.note.iter().chain(&measured.missing).chain(&measured.failed).map(|note| note.trim()).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn as_json(experiment: &Experiment, rows: &[Measured]) -> Json {
    let rows = experiment.rows.iter().zip(rows).map(|(row, measured)| {
        let values = experiment.values.iter().map(|value| {
            let pair = Pair::of(value, row, measured);
            let off = (pair.is_limit || pair.tolerance.is_some()).then(|| pair.is_off());
            let reference = experiment.compared_with.name();
            let what = json!({
                reference: pair.paper, "ours": pair.ours, "difference": pair.difference(),
                "tolerance": pair.tolerance, "is_limit": pair.is_limit, "is_off": off, "measure": value.measure,
            });
            (value.name.clone(), what)
        });
        let values: serde_json::Map<String, Json> = values.collect();
        json!({
            "name": row.name, "program": row.program, "values": values, "note": note(row, measured), "parts": measured.parts,
        })
    });
    json!({
        "id": experiment.id, "title": experiment.title, "source": experiment.source, "method": experiment.how.trim(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(paper: f64, ours: f64, tolerance: Option<f64>, is_limit: bool) -> Pair {
        Pair { paper: Some(paper), ours: Some(ours), tolerance, is_limit }
    }

    #[test]
    fn a_limit_is_exceeded_from_above_only() {
        assert!(!pair(8.0, 5.0, None, true).is_off() && !pair(8.0, 8.0, None, true).is_off());
        assert!(pair(8.0, 9.0, None, true).is_off() && pair(0.0, 1.0, None, true).is_off());
        assert!(!pair(8.0, 8.5, Some(0.1), true).is_off() && pair(8.0, 9.0, Some(0.1), true).is_off());
    }

    #[test]
    fn a_tolerance_is_exceeded_from_both_sides() {
        assert!(pair(8.0, 5.0, Some(0.25), false).is_off() && pair(8.0, 11.0, Some(0.25), false).is_off());
        assert!(!pair(8.0, 7.0, Some(0.25), false).is_off() && !pair(8.0, 80.0, None, false).is_off());
    }
}
