// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program of a row.

use std::path::Path;

use super::experiment::Row;
use crate::check::source::make_lines_relative;
use crate::failure::Failure;
use flowloom_session::pick_program;
use flowloom_session::{Loaded, compiled};

/// Compiles the program of a row.
pub(super) fn program(row: &Row, functions: &Path) -> Result<Loaded, Failure> {
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
    Ok(Loaded::of_program(program))
}
