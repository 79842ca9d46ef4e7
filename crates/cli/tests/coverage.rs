// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Consistency of `docs/coverage.md`: it lists every item of the papers once, and the things it names exist.

use std::collections::BTreeMap;

use crate::common::top;

/// Items per paper: prefix and count.
const ITEMS: [(&str, usize); 5] = [("FB", 49), ("DP", 8), ("EH", 32), ("SP", 16), ("SN", 26)];

struct Row {
    id: String,
    place: String,
    shown_by: String,
    left: String,
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(top().join("docs/coverage.md")).unwrap();
    text.lines()
        .filter(|line| ITEMS.iter().any(|(prefix, _)| line.starts_with(&format!("| {prefix}-"))))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 5, "five columns expected: {line}");
            assert!(!cells[1].is_empty(), "no item: {line}");
            Row { id: cells[0].into(), place: cells[2].into(), shown_by: cells[3].into(), left: cells[4].into() }
        })
        .collect()
}

/// Contents of backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_item_stands_there_once() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows() {
        *seen.entry(row.id).or_default() += 1;
    }
    let mut wrong = Vec::new();
    for (prefix, count) in ITEMS {
        for number in 1..=count {
            let id = format!("{prefix}-{number}");
            match seen.remove(&id) {
                Some(1) => {}
                Some(times) => wrong.push(format!("{id} stands there {times} times")),
                None => wrong.push(format!("{id} is missing")),
            }
        }
    }
    wrong.extend(seen.keys().map(|id| format!("{id} is no item of the papers")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_named_file_and_test_exists() {
    let mut wrong = Vec::new();
    for row in rows() {
        for path in quoted(&row.place) {
            if !top().join(path).exists() {
                wrong.push(format!("{}: `{path}` does not exist", row.id));
            }
        }
        for named in quoted(&row.shown_by) {
            let (file, test) = named.split_once("::").unwrap_or((named, ""));
            match std::fs::read_to_string(top().join(file)) {
                Ok(text) if test.is_empty() || text.contains(&format!("fn {test}(")) => {}
                Ok(_) => wrong.push(format!("{}: `{file}` has no test `{test}`", row.id)),
                Err(_) => wrong.push(format!("{}: `{file}` does not exist", row.id)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_called_done_without_a_test() {
    for row in rows() {
        assert!(!row.left.is_empty(), "{}: the last column says what is left, or `–`", row.id);
        let open = row.left.contains("open") || row.left.contains("not reproducible");
        if !open {
            assert!(quoted(&row.place).next().is_some(), "{}: not open, and lives nowhere", row.id);
            assert!(quoted(&row.shown_by).next().is_some(), "{}: not open, and no test shows it", row.id);
        }
    }
}
