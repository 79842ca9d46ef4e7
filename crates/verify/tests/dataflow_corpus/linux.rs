// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux's programs that our verifier accepts, with the settings of their loaders.

pub use crate::scoreboard::fitted;

use std::path::PathBuf;
use std::sync::Arc;

use flowloom_isa::Program;
use flowloom_testkit::Rng;
use flowloom_verifier::{Options, verify};
use flowloom_verify::Arrival;
use flowloom_verify::explore::{ExploreOptions, explore};
use flowloom_vm::Interpreter;

use super::programs::case;
use super::{Subject, packets};

/// A program and its object file.
pub struct Linux {
    pub object: String,
    pub program: Arc<Program>,
}

/// Programs of the objects: those that are proved safe, and the number of others.
pub struct Found {
    pub objects: usize,
    pub verified: Vec<Linux>,
    pub others: usize,
}

/// All XDP programs of the objects; `FLOWLOOM_OBJECT` may be a part of an object's name.
///
/// # Errors
/// The objects cannot be built.
pub fn found() -> Result<Found, String> {
    let folder = fitted::objects()?;
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let only = std::env::var("FLOWLOOM_OBJECT").ok();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "o"));
    files.retain(|path| only.as_ref().is_none_or(|only| path.to_string_lossy().contains(only)));
    files.sort();
    let mut found = Found { objects: files.len(), verified: Vec::new(), others: 0 };
    for path in files {
        let name = path.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let Ok(object) = flowloom_object::read_with(&bytes, &name, &fitted::types) else {
            found.others += 1;
            continue;
        };
        for program in object.xdp() {
            let program = fitted::sized(program);
            let is_run = Interpreter::new(Arc::clone(&program)).is_ok();
            if is_run && verify(&program, &Options::default()).is_ok() {
                found.verified.push(Linux { object: name.clone(), program });
            } else {
                found.others += 1;
            }
        }
    }
    Ok(found)
}

/// A program on cases found by exploration, on captures, and on generated and short packets.
pub fn subject(linux: &Linux, captured: &[Arrival], rng: &mut Rng, tries: u64) -> Subject {
    let routes = fitted::routes(&linux.program);
    let options = ExploreOptions { seed: rng.next_u64(), tries, routes: routes.clone(), ..ExploreOptions::default() };
    let explored = explore(&linux.program, &options).unwrap_or_else(|error| panic!("{}: {error}", linux.object));
    let mut cases = explored.cases;
    let mut more = captured.to_vec();
    more.extend(packets::made(rng, 200));
    more.extend(packets::short(rng, 122));
    // The packets start from the state of the first case, after its own packets.
    let mut first = cases.first().cloned().unwrap_or_else(|| case(Vec::new(), rng));
    first.packets.extend(more);
    cases.push(first);
    Subject { program: (*linux.program).clone(), cases, sweep_ns: None, routes }
}
