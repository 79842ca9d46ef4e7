// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of `flowloom test`.

use flowloom_scenario::Mismatch;
use flowloom_verify::{Point, PointKind};
use serde_json::{Value, json};

use super::{Cell, ScenarioResult, SubjectResult, gaps};
use flowloom_session::engines::EngineName;

use crate::args::TestArgs;
use crate::failure::Failure;
use crate::output::{counted, print as print_text, print_json, table};

pub(super) fn print(all: &[SubjectResult], engines: &[EngineName], args: &TestArgs) -> Result<(), Failure> {
    if args.json {
        return print_json(
            &json!({ "functions": all.iter().map(|tested| as_json(tested, engines)).collect::<Vec<_>>() }),
        );
    }
    print_text(&as_text(all, engines, args))
}

fn as_text(all: &[SubjectResult], engines: &[EngineName], args: &TestArgs) -> String {
    let mut text = String::new();
    for tested in all {
        for tried in &tested.scenarios {
            failures(tested, tried, &mut text);
        }
    }
    if args.verbose {
        let rows =
            all.iter().flat_map(|tested| tested.scenarios.iter().map(|tried| scenario_row(tested, tried, engines)));
        let header = heads(&["function", "scenario", "packets"], engines, None);
        text.push_str(&table(&header, &rows.collect::<Vec<_>>(), &[2]));
        text.push('\n');
    }
    let rows: Vec<Vec<String>> = all.iter().map(|tested| row(tested, engines)).collect();
    text.push_str(&table(&heads(&["function", "scenarios"], engines, Some("covered")), &rows, &[1]));
    let reasons = reasons(all, engines);
    if !reasons.is_empty() {
        text.push('\n');
        text.push_str(&reasons);
    }
    for tested in all {
        for point in gaps(&tested.points) {
            text.push_str(&format!("not covered: {}\n", gap(tested, point)));
        }
        for (file, line, source) in tested.lines.gaps() {
            text.push_str(&format!("not covered: {} {}:{line}: {source}\n", tested.name, file_name(file)));
        }
        if tested.scenarios.is_empty() {
            text.push_str(&format!("no scenarios: {}\n", tested.source.display()));
        }
    }
    text
}

fn heads<'a>(first: &[&'a str], engines: &[EngineName], last: Option<&'a str>) -> Vec<&'a str> {
    first.iter().copied().chain(engines.iter().map(|engine| engine.as_str())).chain(last).collect()
}

/// Prints each mismatch once, with the engines that have it.
fn failures(tested: &SubjectResult, tried: &ScenarioResult, text: &mut String) {
    let mut groups: Vec<(&Vec<Mismatch>, Vec<&str>)> = Vec::new();
    for (engine, cell) in &tried.cells {
        let Cell::Failed(mismatches) = cell else { continue };
        match groups.iter_mut().find(|(other, _)| *other == mismatches) {
            Some((_, engines)) => engines.push(engine.as_str()),
            None => groups.push((mismatches, vec![engine.as_str()])),
        }
    }
    for (mismatches, engines) in groups {
        let engines = engines.join(", ");
        text.push_str(&format!("{}:{}: {} \"{}\" on {engines}\n", tried.file, tried.line, tested.name, tried.name));
        for mismatch in mismatches {
            for line in mismatch.to_string().lines() {
                text.push_str(&format!("  {line}\n"));
            }
        }
        text.push('\n');
    }
}

fn scenario_row(tested: &SubjectResult, tried: &ScenarioResult, engines: &[EngineName]) -> Vec<String> {
    let cells = engines.iter().map(|engine| match tried.cells.get(engine) {
        Some(Cell::Passed) => "ok".to_owned(),
        Some(Cell::Failed(_)) => "FAILS".to_owned(),
        Some(Cell::NotRun(_)) | None => "-".to_owned(),
    });
    let first = [tested.name.clone(), tried.name.clone(), tried.packets.to_string()];
    first.into_iter().chain(cells).collect()
}

fn row(tested: &SubjectResult, engines: &[EngineName]) -> Vec<String> {
    let of = |engine: &EngineName| {
        let cells: Vec<&Cell> = tested.scenarios.iter().filter_map(|tried| tried.cells.get(engine)).collect();
        let wrong = cells.iter().filter(|cell| matches!(cell, Cell::Failed(_))).count();
        let right = cells.iter().filter(|cell| matches!(cell, Cell::Passed)).count();
        match (wrong, right) {
            (0, 0) => "-".to_owned(),
            (0, n) if n == cells.len() => "ok".to_owned(),
            (0, n) => format!("{n} of {}", cells.len()),
            (n, _) => format!("{n} FAIL{}", if n == 1 { "S" } else { "" }),
        }
    };
    let first = [tested.name.clone(), tested.scenarios.len().to_string()];
    first.into_iter().chain(engines.iter().map(of)).chain([covered(tested)]).collect()
}

/// `7 rows, 4 of 5 timers, 2 defaults`; of a program `47 of 50 lines`.
fn covered(tested: &SubjectResult) -> String {
    match tested.lines.count() {
        (_, 0) => {}
        (hit, all) if hit == all => return counted(all, "line"),
        (hit, all) => return format!("{hit} of {}", counted(all, "line")),
    }
    let points = &tested.points;
    let gaps = gaps(points);
    let mut seen: Vec<(&str, PointKind)> = Vec::new();
    let (mut rows, mut timers, mut defaults, mut others) = ([0; 2], [0; 2], [0; 2], [0; 2]);
    for point in points {
        let is_row = matches!(point.what, PointKind::Row(_));
        if is_row && seen.contains(&(&point.element, point.what)) {
            continue;
        }
        seen.push((&point.element, point.what));
        let count = match point.what {
            PointKind::Row(_) => &mut rows,
            PointKind::IdleTimeout | PointKind::HardTimeout => &mut timers,
            PointKind::NoMatch | PointKind::NoKey => &mut defaults,
            PointKind::Eviction | PointKind::Rejection => &mut others,
        };
        count[1] += 1;
        let is_gap = gaps
            .iter()
            .any(|gap| gap.element == point.element && gap.what == point.what && (is_row || gap.state == point.state));
        count[0] += usize::from(!is_gap);
    }
    let kinds = [(rows, "row"), (timers, "timer"), (defaults, "default"), (others, "policy outcome")];
    let text = |([hit, all], noun): ([usize; 2], &str)| match (hit, all) {
        (_, 0) => None,
        (hit, all) if hit == all => Some(counted(all, noun)),
        (hit, all) => Some(format!("{hit} of {}", counted(all, noun))),
    };
    let list: Vec<String> = kinds.into_iter().filter_map(text).collect();
    if list.is_empty() { "-".to_owned() } else { list.join(", ") }
}

/// Last component of a path in line information, which may come from another machine.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn gap(tested: &SubjectResult, point: &Point) -> String {
    let state = match (&point.what, &point.state) {
        (PointKind::Row(_), _) | (_, None) => String::new(),
        (_, Some(state)) => format!(" in state `{state}`"),
    };
    let place = if point.text.is_empty() { String::new() } else { format!("; line {}: {}", point.line, point.text) };
    format!("{} {}: {}{state}{place}", tested.name, point.element, point.what)
}

/// Reasons for dashes in the table: each once, with its functions and engines.
fn reasons(all: &[SubjectResult], engines: &[EngineName]) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for tested in all {
        for engine in engines {
            for tried in &tested.scenarios {
                let Some(Cell::NotRun(reason)) = tried.cells.get(engine) else { continue };
                let who = format!("{} on {}", tested.name, engine.as_str());
                match groups.iter_mut().find(|(other, _)| other == reason) {
                    Some((_, list)) if list.contains(&who) => {}
                    Some((_, list)) => list.push(who),
                    None => groups.push((reason.clone(), vec![who])),
                }
            }
        }
    }
    groups.into_iter().map(|(reason, who)| format!("- {}: {reason}\n", who.join(", "))).collect()
}

fn as_json(tested: &SubjectResult, engines: &[EngineName]) -> Value {
    let scenarios: Vec<Value> = tested.scenarios.iter().map(|tried| scenario_json(tried, engines)).collect();
    let missing = gaps(&tested.points);
    let (run, all) = tested.lines.count();
    let missed: Vec<Value> = tested
        .lines
        .gaps()
        .map(|(file, line, text)| json!({"file": file_name(file), "line": line, "text": text}))
        .collect();
    let points: Vec<Value> = tested
        .points
        .iter()
        .map(|p| {
            let is_gap = missing.iter().any(|gap| gap.element == p.element && gap.what == p.what && gap.state == p.state);
            json!({"element": p.element, "what": p.what.to_string(), "state": p.state, "line": p.line, "hits": p.hits, "gap": is_gap})
        })
        .collect();
    json!({
        "function": tested.name,
        "source": tested.source.display().to_string(),
        "scenarios": scenarios,
        "coverage": points,
        "lines": {"run": run, "all": all, "missed": missed},
        "covered": (!tested.points.is_empty() || all > 0) && missing.is_empty() && run == all,
    })
}

fn scenario_json(tried: &ScenarioResult, engines: &[EngineName]) -> Value {
    let mut results = serde_json::Map::new();
    for engine in engines {
        let result = match tried.cells.get(engine) {
            Some(Cell::Passed) => json!({"result": "ok"}),
            Some(Cell::Failed(mismatches)) => {
                let list: Vec<Value> = mismatches
                    .iter()
                    .map(|m| json!({"line": m.line, "text": m.text, "subject": m.subject, "details": m.details}))
                    .collect();
                json!({"result": "fails", "mismatches": list})
            }
            Some(Cell::NotRun(reason)) => json!({"result": "not run", "why": reason}),
            None => Value::Null,
        };
        results.insert(engine.as_str().to_owned(), result);
    }
    json!({"scenario": tried.name, "file": tried.file, "line": tried.line, "packets": tried.packets, "engines": results})
}
