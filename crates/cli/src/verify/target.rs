// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Targets, on one core or on several.

use flowloom_session::engines::{CoresOptions, EngineName, EngineOptions, Started};
use flowloom_session::{Loaded, SessionError};

use crate::output::print_note;

/// A loaded target.
pub(super) struct Target {
    pub(super) started: Started,
    /// Cores that it runs on.
    pub(super) cores: u32,
    /// Why it runs on one core although several were asked for.
    pub(super) why_one: Option<String>,
}

/// Loads a target, on several cores if they are asked for and it can run on them.
///
/// # Errors
/// It refuses the function, or cannot be used here.
pub(super) fn load(
    name: EngineName,
    loaded: &Loaded,
    options: &EngineOptions,
    workers: Option<u32>,
) -> Result<Target, SessionError> {
    let mut why_one = None;
    if let Some(workers @ 2..) = workers {
        if name.kind().on_core.is_none() {
            why_one = Some(format!("--workers {workers}: target `{}` runs on one core", name.as_str()));
        } else {
            // Short traces, too, are run by several threads.
            let how = CoresOptions { parallel_from: 1, is_paced: false, ..CoresOptions::default() };
            match name.load_on_cores(loaded, options, workers as usize, how) {
                Ok((cores, notes)) => {
                    let started = Started { engine: Box::new(cores), notes };
                    return Ok(Target { started, cores: workers, why_one });
                }
                Err(SessionError::OneCore(reasons)) => {
                    let (target, reasons) = (name.as_str(), reasons.join("; "));
                    why_one = Some(format!("--workers {workers}: target `{target}` runs on one core: {reasons}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Target { started: name.load(loaded, options)?, cores: 1, why_one })
}

/// True if a target with this name is the reference itself.
pub(super) fn is_reference(name: EngineName, loaded: &Loaded, workers: Option<u32>) -> bool {
    let runs_on_several = workers.is_some_and(|workers| workers > 1) && name.kind().on_core.is_some();
    name == EngineName::reference(loaded) && !runs_on_several
}

/// True if a target that was to run on several cores is the reference, since the function needs one core; a note says so.
pub(super) fn is_reference_after_all(name: EngineName, loaded: &Loaded, cores: u32) -> bool {
    let is_reference = cores == 1 && name == EngineName::reference(loaded);
    if is_reference {
        print_note(&format!("target `{}` is skipped: on one core it is the reference itself", name.as_str()));
    }
    is_reference
}
