// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prover z3 on questions in SMT-LIB 2.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Stdio};

use flowloom_ir::rules::{Question, Rule, questions};
use flowloom_testkit::skip;

/// Seconds for one question.
const TIMEOUT_S: u32 = 120;

/// The prover, where it is installed; otherwise says that the test is skipped.
pub(crate) fn prover(test: &str) -> Option<Prover> {
    match Command::new("z3").arg("--version").output() {
        Ok(out) => Some(Prover { version: String::from_utf8_lossy(&out.stdout).trim().to_owned() }),
        Err(_) => {
            skip(test, "`z3` is not installed (Debian package `z3`)");
            None
        }
    }
}

pub(crate) struct Prover {
    pub(crate) version: String,
}

/// What became of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// So many questions were answered as they have to be.
    Proved(usize),
    /// Where it does not hold, with numbers that show it.
    Refuted(String),
    /// What the prover could not tell.
    Unknown(String),
}

impl Prover {
    /// What the prover says to a text.
    pub(crate) fn says(&self, text: &str) -> String {
        let mut command = Command::new("z3");
        command.args(["-smt2", "-in", &format!("-t:{}", TIMEOUT_S * 1000)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let text = text.to_owned();
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        // A prover that ends early has closed its input.
        assert!(writer.join().unwrap().is_ok(), "z3 ended with {}: {said}", out.status);
        said
    }

    /// Judges a rule where widths are some of these.
    pub(crate) fn judge(&self, rule: &Rule, widths: &[u16], limit: usize) -> Judged {
        let all = questions(rule, widths, limit).unwrap();
        let said = self.says(&all.iter().map(|one| one.smt.as_str()).collect::<String>());
        let answers: Vec<&str> = said.lines().collect();
        let wrong = answers.iter().position(|answer| *answer != "unsat");
        let Some(wrong) = wrong else {
            assert_eq!(answers.len(), all.len(), "{}", rule.name);
            return Judged::Proved(all.len());
        };
        let Question { about, smt } = &all[wrong];
        match answers[wrong] {
            "sat" => {
                let model = self.says(&format!("{smt}(get-model)\n"));
                let words: Vec<&str> = model.lines().skip(1).map(str::trim).collect();
                Judged::Refuted(format!("where {about}: {}", words.join(" ")))
            }
            other => Judged::Unknown(format!("where {about}: {other}")),
        }
    }
}
