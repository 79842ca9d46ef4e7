//! Programs with which Linux tests its verifier: how they are read, judged and told of.
#![allow(unreachable_pub, missing_docs, clippy::panic, clippy::print_stdout)]

pub mod adapted;
pub mod cases;
pub mod own;
pub mod reasons;
pub mod table;

use flowloom_exec::{ExecError, judge};
use flowloom_isa::Flaw;
use flowloom_isa::{Program, ProgramError, ProgramKind};
use flowloom_verifier::{Options, Proof, VerifyError, verify};

/// A program, and what its authors say of it in the place that it was written for.
#[derive(Debug, Clone)]
pub struct Case {
    /// The file and the function or case; that it was adapted.
    pub name: String,
    pub program: Program,
    /// Its authors say that it is to be refused.
    pub must_fail: bool,
}

/// What the kernel says of a program.
#[derive(Debug, Clone)]
pub enum Kernel {
    Accepts,
    /// Its last words.
    Refuses(String),
    /// It could not be asked.
    Unasked(String),
}

/// What our verifier says.
#[derive(Debug, Clone)]
pub enum Ours {
    Accepts(Box<Proof>),
    /// Why it is not safe, or not seen to be.
    Refuses(String),
    /// It asks for something that Flowloom does not have.
    Lacks(String),
    /// Nothing: it broke.
    Breaks,
}

/// A case with both opinions.
#[derive(Debug, Clone)]
pub struct Judged {
    pub case: Case,
    pub kernel: Kernel,
    pub ours: Ours,
}

impl Case {
    /// Both opinions of it as XDP.
    pub fn judged(mut self) -> Judged {
        (self.program.kind, self.program.section) = (ProgramKind::Xdp, "xdp".to_owned());
        // A verifier that breaks is to be told of with the others.
        let verified = std::panic::catch_unwind(|| verify(&self.program, &Options::default()));
        let ours = match verified {
            Ok(Ok(proof)) => Ours::Accepts(Box::new(proof)),
            Ok(Err(VerifyError::Refused(refusal))) => {
                Ours::Refuses(format!("instruction {} `{}`: {}", refusal.insn, refusal.text, refusal.what))
            }
            Ok(Err(VerifyError::Program(error))) => unfit(&error),
            Err(_) => Ours::Breaks,
        };
        let kernel = match self.program.lacks.first() {
            Some(lack) => Kernel::Unasked(lack.want.to_string()),
            None => asked(&self.program),
        };
        Judged { case: self, kernel, ours }
    }
}

/// A program that cannot be run: for lack of something, or because it is none.
fn unfit(error: &ProgramError) -> Ours {
    let is_lack = |flaw: &Flaw| match flaw {
        Flaw::Helper { .. } | Flaw::Lack(_) | Flaw::Unsupported { .. } => true,
        Flaw::Map { what, .. } => *what == "kind",
        _ => false,
    };
    match error.findings.iter().find(|finding| is_lack(&finding.flaw)) {
        Some(finding) => Ours::Lacks(finding.flaw.to_string()),
        None => Ours::Refuses(error.findings.first().map(ToString::to_string).unwrap_or_default()),
    }
}

fn asked(program: &Program) -> Kernel {
    match judge(program) {
        Ok(()) => Kernel::Accepts,
        Err(ExecError::Refused(refused)) => Kernel::Refuses(refused.reason.replace('\n', " ")),
        Err(ExecError::Load { action, source, .. }) if action == "load the program" => {
            Kernel::Refuses(format!("(without words) {source}"))
        }
        Err(other) => Kernel::Unasked(other.to_string()),
    }
}
