//! The program of a row.

use std::path::Path;

use flowloom_isa::Program;
use flowloom_verifier::Proof;

use super::Row;
use crate::check::source::make_lines_relative;
use crate::explain::proof;
use crate::failure::Failure;
use flowloom_session::compiled;
use flowloom_session::pick_program;

/// Compiles and verifies the program of a row.
pub(super) fn program(row: &Row, functions: &Path) -> Result<(Program, Proof), Failure> {
    let name = row.program.as_deref().unwrap_or_default();
    let path = functions.join(name);
    let bytes = std::fs::read(&path).map_err(|e| {
        Failure::Input(format!(
            "`{}` cannot be read: {e}; --functions names the folder with the functions",
            path.display()
        ))
    })?;
    let params: Vec<(String, String)> = row.params.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let compiled = compiled(&path, &bytes, &params, None)?;
    let mut program = pick_program(&compiled.object, None)?.clone();
    make_lines_relative(&mut program.lines);
    let proof = proof(&program, false)?;
    Ok((program, proof))
}
