// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the errors of system calls and of rewriting.

use std::io;

use flowloom_engine::EngineError;
use flowloom_isa::Program;

use crate::error::ExecError;
use crate::rewrite::error::RewriteError;

/// The name for `--engine`.
pub(super) const NAME: &str = "kernel";

/// The error for a program that cannot be rewritten, with the source line.
pub(crate) fn rewriting_failed(program: &Program, source: RewriteError) -> ExecError {
    let line = source.insn().and_then(|insn| program.line_of(insn)).cloned().map(Box::new);
    ExecError::Rewrite { program: program.name.clone(), line, source }
}

pub(crate) fn system(action: impl Into<String>, source: io::Error) -> EngineError {
    EngineError::System { engine: NAME, action: action.into(), source }
}
