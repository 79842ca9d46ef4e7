// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom build --target overlay`: the image of a function for the FlowBlaze machine, and its listing.

use std::fs;

use flowloom_overlay::{Parameters, compile, configuration, configure, listing};
use flowloom_session::engines::compile_for_smallest;
use serde_json::json;

use crate::args::BuildArgs;
use crate::check::overlay;
use crate::failure::Failure;
use crate::files::Files;
use crate::output::{counted, print, print_json, warn};

pub(super) fn image(args: &BuildArgs) -> Result<(), Failure> {
    for (is_given, option) in [
        (args.counters, "--counters"),
        (args.device.device.is_some(), "--device"),
        (args.hash_seed.is_some(), "--hash-seed"),
        (args.clock.is_some(), "--clock"),
    ] {
        if is_given {
            let why = "an image configures a machine that is already synthesised";
            return Err(Failure::Input(format!("{option} does not apply to --target overlay: {why}")));
        }
    }
    super::is_folder(&args.output)?;
    let loaded = args.function.load()?;
    warn(loaded.warnings());
    let Some(function) = loaded.function() else {
        return Err(Failure::Input(
            "--target overlay requires an `.efsm` source: the machine runs no objects".to_owned(),
        ));
    };
    let compilation = match &args.parameters {
        None => compile_for_smallest(function),
        Some(name) => compile(function, parameters(name)?),
    };
    let set = compilation.image.parameters.name;
    if !compilation.fits() {
        let reasons = overlay::reasons(function, &compilation).join("\n  ");
        return Err(Failure::Found(format!("`{}` does not fit the parameters `{set}`:\n  {reasons}", loaded.name())));
    }
    let (image, writes) = configure(&compilation.image, &function.graph)
        .map_err(|error| Failure::Found(format!("`{}` does not fit the parameters `{set}`: {error}", loaded.name())))?;
    let files = [
        (format!("{}.image", loaded.name()), configuration(&image, &writes)),
        (format!("{}.listing", loaded.name()), listing(&image, function)),
    ];
    let paths: Vec<_> = files.iter().map(|(name, _)| args.output.join(name)).collect();
    let mut checked = Files::default().reads("the function", [&args.function.path]);
    for path in &paths {
        checked = checked.writes("-o", Some(path));
    }
    checked.check()?;
    fs::create_dir_all(&args.output).map_err(|e| Failure::file("created", &args.output, &e))?;
    for ((_, text), path) in files.iter().zip(&paths) {
        fs::write(path, text).map_err(|e| Failure::file("written", path, &e))?;
    }
    let words = writes.len();
    if args.json {
        return print_json(&json!({
            "image": paths[0].display().to_string(),
            "listing": paths[1].display().to_string(),
            "parameters": set,
            "words": words,
            "uses": overlay::uses_json(&compilation),
        }));
    }
    print(&format!("{}: parameters `{set}`, {}\n", paths[0].display(), counted(words, "configuration word")))
}

/// The set of parameters with this name.
fn parameters(name: &str) -> Result<&'static Parameters, Failure> {
    Parameters::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = Parameters::NAMED.iter().map(|set| set.name).collect();
        Failure::Input(format!("--parameters: expected {}, found `{name}`", known.join(" or ")))
    })
}
