// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of source files and lines in the output of `check`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flowloom_isa::LineInfo;
use flowloom_object::Object;
use serde_json::{Value, json};

/// Makes the source paths of an object relative to the current folder. Compilers record absolute or indirect paths.
pub(super) fn make_relative(object: &mut Object) {
    make_lines_relative(object.programs.iter_mut().flat_map(|program| &mut program.lines));
}

/// Makes the source paths of these lines relative to the current folder.
pub(crate) fn make_lines_relative<'l>(lines: impl IntoIterator<Item = &'l mut LineInfo>) {
    let Some(here) = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok()) else { return };
    let mut known: HashMap<String, String> = HashMap::new();
    for line in lines {
        let name = known.entry(line.file.clone()).or_insert_with(|| from(&here, &line.file));
        line.file.clone_from(name);
    }
}

fn from(here: &Path, file: &str) -> String {
    let whole = Path::new(file).canonicalize().ok();
    let below = whole.as_ref().and_then(|whole| whole.strip_prefix(here).ok()).map(PathBuf::from);
    below.map_or_else(|| file.to_owned(), |below| below.display().to_string())
}

/// A source line as JSON; null if unknown.
pub(super) fn line_json(line: Option<&LineInfo>) -> Value {
    let line = line.filter(|line| line.line > 0);
    line.map_or(Value::Null, |l| json!({"file": l.file, "line": l.line, "column": l.column, "text": l.text}))
}
