// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XDP programs of public packages, run through the user commands. Start with `make evidence ONLY=public-programs`.
//!
//! `scripts/public-objects` fetches and compiles them; `FLOWLOOM_OBJECTS` names another folder with objects and an
//! `objects.json`. `FLOWLOOM_OBJECT` selects objects by a part of their name; the book is not updated then.

use crate::public;

use std::path::PathBuf;
use std::process::Command;

use crate::common::top;
use flowloom_testkit::skip;
use public::page;
use public::trial::{self, LIMIT, Made, Row};

/// Minimum number of distinct programs; fewer mean that some were lost.
const MIN_PROGRAMS: usize = 60;

fn objects() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("FLOWLOOM_OBJECTS") {
        return Ok(folder.into());
    }
    let made = Command::new(top().join("scripts/public-objects")).output();
    let made = made.map_err(|error| format!("scripts/public-objects cannot be run: {error}"))?;
    if made.status.success() {
        return Ok(top().join("target/public/objects"));
    }
    let words = String::from_utf8_lossy(&made.stderr);
    Err(format!("scripts/public-objects: {}", words.lines().last().unwrap_or("no reason given")))
}

/// Runs `check`, `verify --packets 300` and `explain` on XDP programs of Debian packages, crates and PyPI packages that
/// no other test uses, and compares with the kernel's verdict. Of the programs that the kernel accepts, we accept 95%;
/// of those that it rejects, none. No engine disagrees. No command takes longer than 60 s. 80% of the programs without
/// foreign features have a plan. The table is in the book (`public.md`).
#[test]
#[ignore = "minutes"]
fn evidence_public_programs() {
    const TEST: &str = "evidence_public_programs";
    if let Err(reason) = flowloom_exec::KernelEngine::available() {
        return skip(TEST, &reason.to_string());
    }
    let folder = match objects() {
        Ok(folder) => folder,
        Err(reason) => return skip(TEST, &reason),
    };
    let only = std::env::var("FLOWLOOM_OBJECT").ok();
    let made = std::fs::read(folder.join("objects.json")).expect("objects.json");
    let made: Vec<Made> = serde_json::from_slice(&made).expect("objects.json");
    let mut rows: Vec<Row> = Vec::new();
    for one in made.iter().filter(|one| !one.name.is_empty()) {
        if only.as_ref().is_some_and(|only| !one.name.contains(only)) {
            continue;
        }
        for row in trial::object(&folder.join(&one.name), one) {
            println!("{row}");
            rows.push(row);
        }
    }
    let figures = page::Figures::of(&rows);
    println!("\n{}", page::packages(&made));
    println!("{figures}");
    if only.is_some() {
        return;
    }
    let named = |rows: &[&Row]| rows.iter().map(|row| row.to_string()).collect::<Vec<_>>().join("\n");
    assert!(figures.programs >= MIN_PROGRAMS, "{} programs, at least {MIN_PROGRAMS} are expected", figures.programs);
    let slow: Vec<&Row> = rows.iter().filter(|row| row.slowest() >= LIMIT).collect();
    assert!(slow.is_empty(), "longer than {LIMIT:?}:\n{}", named(&slow));
    let wrong: Vec<&Row> = rows.iter().filter(|row| row.is_wrong()).collect();
    assert!(wrong.is_empty(), "the engines disagree, or only we accept it:\n{}", named(&wrong));
    let refused: Vec<&Row> = rows.iter().filter(|row| row.is_refused_alone()).collect();
    let (ran, in_kernel) = (figures.accepted, figures.in_kernel);
    assert!(ran * 100 >= in_kernel * 95, "{ran} of {in_kernel} that the kernel accepts:\n{}", named(&refused));
    let (planned, plannable) = (figures.planned, figures.plannable);
    let unplanned: Vec<&Row> = rows.iter().filter(|row| row.is_plannable() && row.plan.is_err()).collect();
    assert!(planned * 100 >= plannable * 80, "{planned} of {plannable} have a plan:\n{}", named(&unplanned));
    if std::env::var_os("FLOWLOOM_EVIDENCE").is_some() {
        let book = top().join("docs/book/src/public.md");
        std::fs::write(&book, page::render(&rows, &made)).unwrap_or_else(|error| panic!("{}: {error}", book.display()));
    }
}
