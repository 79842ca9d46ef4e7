// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks, their compiled models, and plans.

use std::path::{Path, PathBuf};

use flowloom_cosim::{Design, Model};
use flowloom_isa::Program;
use flowloom_plan::{Options, Plan, plan};
use flowloom_verifier::verify;

/// Blocks that cores instantiate.
const BLOCKS: [&str; 4] = ["prim/fl_mul", "prim/fl_div", "prim/fl_div_const", "table/fl_array"];

/// The folder of the repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The file of a block of `hdl/`, such as `prim/fl_mul`.
pub(crate) fn block_path(block: &str) -> PathBuf {
    top().join("hdl").join(block).with_extension("sv")
}

/// Plans a program that is safe.
pub(crate) fn planned(program: &Program) -> Result<Plan, String> {
    let proof = verify(program, &flowloom_verifier::Options::default()).map_err(|error| error.to_string())?;
    plan(program, &proof, &Options::default()).map_err(|refusal| refusal.to_string())
}

/// The compiled model of modules, given by name and text, the top module last; none, with the reason printed, where
/// Verilator is not installed.
pub(crate) fn build_model(test: &str, modules: &[(String, String)]) -> Option<Model> {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = BLOCKS.iter().map(|block| block_path(block)).collect();
    for (module, text) in modules {
        let path = folder.path().join(module).with_extension("sv");
        std::fs::write(&path, text).unwrap();
        files.push(path);
    }
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let (name, _) = modules.last().unwrap();
    match Model::build(&Design::new(name, &files), &top().join("target/cosim")) {
        Ok(model) => Some(model),
        Err(error) if error.is_missing_tool() => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
