// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs with which Linux tests its verifier: reading, judging and reporting.
#![allow(unreachable_pub, missing_docs, clippy::panic, clippy::print_stdout)]

pub mod adapted;
pub mod cases;
pub mod own;
pub mod reasons;
pub mod table;

use flowloom_exec::{ExecError, verify_in_kernel};
use flowloom_isa::Flaw;
use flowloom_isa::{Program, ProgramError, ProgramKind};
use flowloom_verifier::{Options, Proof, VerifyError, verify};

/// A program, and the result that its authors expect for its original context.
#[derive(Debug, Clone)]
pub struct Case {
    /// File and function or case; also says if it was adapted.
    pub name: String,
    pub program: Program,
    /// True if its authors expect it to be refused.
    pub must_fail: bool,
}

/// Result of the kernel's verifier.
#[derive(Debug, Clone)]
pub enum Kernel {
    Accepts,
    /// Last line of its log.
    Refuses(String),
    /// The kernel could not judge it.
    Unasked(String),
}

/// Result of our verifier.
#[derive(Debug, Clone)]
pub enum Ours {
    Accepts(Box<Proof>),
    /// Reason why it is not, or cannot be proved, safe.
    Refuses(String),
    /// It uses a feature that Flowloom does not support.
    Lacks(String),
    /// The verifier panicked.
    Breaks,
}

/// A case with both results.
#[derive(Debug, Clone)]
pub struct Judged {
    pub case: Case,
    pub kernel: Kernel,
    pub ours: Ours,
}

impl Case {
    /// Both results for it as XDP.
    pub fn judged(mut self) -> Judged {
        (self.program.kind, self.program.section) = (ProgramKind::Xdp, "xdp".to_owned());
        // A panic of the verifier is reported with the other results.
        let verified = std::panic::catch_unwind(|| verify(&self.program, &Options::default()));
        let ours = match verified {
            Ok(Ok(proof)) => Ours::Accepts(Box::new(proof)),
            Ok(Err(VerifyError::Refused(refusal))) => {
                Ours::Refuses(format!("instruction {} `{}`: {}", refusal.insn, refusal.text, refusal.what))
            }
            Ok(Err(VerifyError::Program(error))) => unfit(&error),
            Err(_) => Ours::Breaks,
        };
        let kernel = match self.program.unresolved.first() {
            Some(unresolved) => Kernel::Unasked(unresolved.reference.to_string()),
            None => asked(&self.program),
        };
        Judged { case: self, kernel, ours }
    }
}

/// Result for a program that cannot be run: unsupported or invalid.
fn unfit(error: &ProgramError) -> Ours {
    let is_lack = |flaw: &Flaw| match flaw {
        Flaw::Helper { .. } | Flaw::Unresolved(_) | Flaw::Unsupported { .. } => true,
        Flaw::Map { what, .. } => *what == "kind",
        _ => false,
    };
    match error.findings.iter().find(|finding| is_lack(&finding.flaw)) {
        Some(finding) => Ours::Lacks(finding.flaw.to_string()),
        None => Ours::Refuses(error.findings.first().map(ToString::to_string).unwrap_or_default()),
    }
}

fn asked(program: &Program) -> Kernel {
    match verify_in_kernel(program) {
        Ok(()) => Kernel::Accepts,
        Err(ExecError::Refused(refused)) => Kernel::Refuses(refused.reason.replace('\n', " ")),
        Err(ExecError::Load { action, source, .. }) if action == "load the program" => {
            Kernel::Refuses(format!("(without words) {source}"))
        }
        Err(other) => Kernel::Unasked(other.to_string()),
    }
}
