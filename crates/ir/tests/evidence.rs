// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long proofs, with their figures on standard output. Run with `cargo test -p flowloom-ir --release --test all evidence::
//! -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use crate::common;

use std::fs::{OpenOptions, read_to_string};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};
use std::time::Instant;

use common::{Judged, Prover, prover};
use flowloom_ir::rules::{Rule, questions, rules};

/// Maximum number of questions about a rule; of more, those at the ends and in the middle of widths and places.
const LIMIT: usize = 2500;

/// Other widths than 64.
const OTHERS: [u16; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 31, 32, 33, 63];

/// Rules that an interrupted run has proved, one line each: hash of the prover's version and of the questions.
const PROVED: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/rules-proved");

/// A proved rule.
struct Proved {
    text: String,
    questions: usize,
    /// Time at 64 bits and at other widths; `None` if an interrupted run has proved it.
    seconds: Option<f64>,
}

/// Identifies the questions about a rule, and the prover that answered them.
fn identity(prover: &Prover, rule: &Rule) -> (u64, usize) {
    let mut hash = DefaultHasher::new();
    prover.version.hash(&mut hash);
    let mut count = 0;
    for (widths, limit) in [(&[64][..], LIMIT), (&OTHERS, LIMIT / 5)] {
        for question in questions(rule, widths, limit).unwrap() {
            question.smt.hash(&mut hash);
            count += 1;
        }
    }
    (hash.finish(), count)
}

fn prove(prover: &Prover, rule: &Rule, known: &str) -> Proved {
    let (hash, questions) = identity(prover, rule);
    assert!(questions > 0, "{}: no question", rule.name);
    let (line, text) = (format!("{hash:016x}\n"), rule.text.to_string());
    if known.contains(&line) {
        return Proved { text, questions, seconds: None };
    }
    let start = Instant::now();
    for (widths, limit) in [(&[64][..], LIMIT), (&OTHERS, LIMIT / 5)] {
        let judged = prover.judge(rule, widths, limit);
        assert!(matches!(judged, Judged::Proved(_)), "{}: {judged:?}", rule.text);
    }
    let mut file = OpenOptions::new().create(true).append(true).open(Path::new(PROVED)).unwrap();
    file.write_all(line.as_bytes()).unwrap();
    Proved { text, questions, seconds: Some(start.elapsed().as_secs_f64()) }
}

/// Every rewrite rule of the dataflow is true by the prover z3: at 64 bits with all widths of parts and all places (of
/// more than 2500 combinations those at the ends and in the middle), then at other widths. `built in` is what the graph
/// does by itself. A wrong rule, planted, is refuted. A run that follows an interrupted one does not prove again what
/// that has proved by the same questions.
#[test]
#[ignore = "minutes"]
fn evidence_rules() {
    let Some(prover) = prover("evidence_rules") else { return };
    println!("{}\n", prover.version);
    let known = read_to_string(PROVED).unwrap_or_default();
    let start = Instant::now();
    let (next, proved) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(rule) = rules().get(number) else { return };
            let one = prove(&prover, rule, &known);
            proved.lock().unwrap().push((number, one));
        }
    };
    scope(|scope| (0..available_parallelism().map_or(1, usize::from)).for_each(|_| _ = scope.spawn(work)));
    let mut proved = proved.into_inner().unwrap();
    proved.sort_by_key(|(number, _)| *number);
    for (number, one) in &proved {
        let mark = if rules()[*number].is_built_in { "built in  " } else { "" };
        let taken = one.seconds.map_or("before an interruption".to_owned(), |seconds| format!("in {seconds:.1} s"));
        println!("{mark}{}\n    proved: {} questions {taken}", one.text, one.questions);
    }
    let total: usize = proved.iter().map(|(_, one)| one.questions).sum();
    println!("\n{} rules, {total} questions, {:.0} s", proved.len(), start.elapsed().as_secs_f64());
    let planted = "planted: (sub x:w y) => (zext w (sub (slice 0 m x) (slice 0 m y))) where m = unsigned x y, m < w";
    let judged = prover.judge(&Rule::parse(planted).unwrap()[0], &[64], LIMIT);
    let Judged::Refuted(why) = judged else { panic!("{planted}: {judged:?}") };
    println!("\n{planted}\n    refuted {why}");
    // The next run proves all rules anew.
    std::fs::remove_file(PROVED).unwrap();
}
