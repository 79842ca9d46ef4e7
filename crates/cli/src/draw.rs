// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom draw`: renders the state machines of a function.

use std::fs;

use flowloom_efsm::Drawing;

use crate::args::{DrawArgs, Picture};
use crate::failure::Failure;
use crate::files::Files;
use crate::output::{print, quoted, warn};

pub(crate) fn draw(args: &DrawArgs) -> Result<(), Failure> {
    let format = format(args)?;
    let loaded = args.function.load()?;
    let Some(function) = loaded.function() else {
        let path = args.function.path.display();
        return Err(Failure::Input(format!("`{path}` is an object, which has no states; draw its source")));
    };
    warn(loaded.warnings());
    let drawing = match &args.element {
        None => Drawing::new(function),
        Some(name) => Drawing::of_element(function, name).ok_or_else(|| {
            let names = quoted(function.elements.iter().map(|element| &element.name));
            Failure::Input(format!("`{}` has no element `{name}`; it has {names}", function.name))
        })?,
    };
    let text = match format {
        Picture::Svg => drawing.svg().map_err(|error| Failure::Input(format!("{error} (`--format dot`)")))?,
        Picture::Dot => drawing.dot(),
    };
    let Some(path) = &args.output else { return print(&text) };
    Files::default().reads("the function", [&args.function.path]).writes("-o", Some(path)).check()?;
    fs::write(path, text).map_err(|e| Failure::file("written", path, &e))
}

/// Returns the format that `--format` or the file extension selects.
fn format(args: &DrawArgs) -> Result<Picture, Failure> {
    let ending = args.output.as_ref().and_then(|path| path.extension()).map(|ending| ending.to_ascii_lowercase());
    let by_ending = match ending.as_ref().and_then(|ending| ending.to_str()) {
        Some("svg") => Some(Picture::Svg),
        Some("dot" | "gv") => Some(Picture::Dot),
        _ => None,
    };
    match (args.format, by_ending, &args.output) {
        (Some(asked), Some(written), Some(path)) if asked != written => Err(Failure::Input(format!(
            "--format says something else than the ending of `{}`; leave one of them away",
            path.display()
        ))),
        (None, None, Some(path)) => Err(Failure::Input(format!(
            "`{}` has no known extension: use .svg or .dot, or give --format",
            path.display()
        ))),
        (asked, written, _) => Ok(asked.or(written).unwrap_or(Picture::Svg)),
    }
}
