//! Source lines as `check` names them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flowloom_isa::LineInfo;
use flowloom_object::Object;
use serde_json::{Value, json};

/// Names source files as they are seen from here: compilers name them by whole paths, and by ways through other folders.
pub(super) fn nearer(object: &mut Object) {
    nearer_lines(object.programs.iter_mut().flat_map(|program| &mut program.lines));
}

/// The same of these lines.
pub(crate) fn nearer_lines<'l>(lines: impl IntoIterator<Item = &'l mut LineInfo>) {
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

/// A source line for programs; null where it is not known.
pub(super) fn line_json(line: Option<&LineInfo>) -> Value {
    let line = line.filter(|line| line.line > 0);
    line.map_or(Value::Null, |l| json!({"file": l.file, "line": l.line, "column": l.column, "text": l.text}))
}
