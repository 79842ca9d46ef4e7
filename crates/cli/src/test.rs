// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom test`: plays the scenarios of functions on every engine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use flowloom_efsm::Coverage;
use flowloom_scenario::{Mismatch, Suite};
use flowloom_verify::{Point, PointKind, Reached};

use flowloom_session::engines::EngineName;

use crate::args::TestArgs;
use crate::failure::Failure;
use crate::files::entries;
use crate::output::{progress, quoted};
use flowloom_session::is_program;
use lines::Lines;
use loaded::{Choice, Loaded};

mod lines;
mod loaded;
mod report;

/// A function or program and its scenario files.
struct Subject {
    source: PathBuf,
    suites: Vec<Suite>,
}

/// Result of a scenario on an engine.
enum Cell {
    Passed,
    Failed(Vec<Mismatch>),
    /// Not played, with the reason.
    NotRun(String),
}

struct ScenarioResult {
    file: String,
    line: u32,
    name: String,
    packets: usize,
    cells: BTreeMap<EngineName, Cell>,
}

struct SubjectResult {
    name: String,
    source: PathBuf,
    scenarios: Vec<ScenarioResult>,
    points: Vec<Point>,
    lines: Lines,
}

pub(crate) fn test(args: &TestArgs) -> Result<(), Failure> {
    let engines = args.engines();
    let subjects = subjects(&args.paths)?;
    for engine in &args.engine {
        (engine.kind().available)().map_err(|reason| {
            Failure::Environment(format!("engine `{}` cannot run here: {reason}", engine.as_str()))
        })?;
    }
    let bar = progress("scenarios", None);
    let mut all = Vec::new();
    let mut unreadable = 0;
    for subject in &subjects {
        let tested = run(subject, args, &engines, &bar).and_then(|tested| {
            // Without scenarios, the source was not compiled yet.
            if tested.scenarios.is_empty() && args.filter.is_none() {
                compiles(&subject.source)?;
            }
            Ok(tested)
        });
        match tested {
            Ok(tested) if tested.scenarios.is_empty() && args.filter.is_some() => {}
            Ok(tested) => all.push(tested),
            // Test the other functions nevertheless.
            Err(failure @ (Failure::Source(_) | Failure::Input(_))) => {
                failure.print();
                unreadable += 1;
            }
            Err(failure) => return Err(failure),
        }
    }
    bar.finish_and_clear();
    if all.is_empty() && unreadable == 0 {
        let what = args.filter.as_ref().map_or_else(String::new, |filter| format!(" whose name contains `{filter}`"));
        return Err(Failure::Input(format!("no scenario{what}: nothing was tested")));
    }
    report::print(&all, &engines, args)?;
    if unreadable > 0 {
        return Err(Failure::Input(format!("{unreadable} of {} functions were not tested", subjects.len())));
    }
    let is_wrong = |tried: &ScenarioResult| tried.cells.values().any(|cell| matches!(cell, Cell::Failed(_)));
    let is_finding = all.iter().any(|tested| {
        tested.scenarios.iter().any(is_wrong)
            || args.require_coverage
                && (tested.scenarios.is_empty()
                    || !gaps(&tested.points).is_empty()
                    || tested.lines.gaps().next().is_some())
    });
    if is_finding { Err(Failure::Finding) } else { Ok(()) }
}

/// Compiles the source of a function without scenarios, to report its errors.
fn compiles(source: &Path) -> Result<(), Failure> {
    if source.extension().is_none_or(|extension| extension != "efsm") {
        return Ok(());
    }
    let text = fs::read_to_string(source).map_err(|e| Failure::file("read", source, &e))?;
    let files = flowloom_session::SiblingFiles(source);
    let compiled = flowloom_efsm::compile_with(&source.display().to_string(), &text, &[], &files);
    compiled.map(drop).map_err(|errors| Failure::Source(Box::new(errors)))
}

/// Subjects of the paths: sources, scenario files, and folders with both.
fn subjects(paths: &[PathBuf]) -> Result<Vec<Subject>, Failure> {
    let mut sources: BTreeMap<PathBuf, Vec<Suite>> = BTreeMap::new();
    for path in paths {
        let is = |extension: &str| path.extension().is_some_and(|e| e == extension);
        if path.is_dir() {
            walk(path, &mut sources)?;
        } else if is("scenario") {
            for (function, suite) in read_suite(path)? {
                sources.entry(function).or_default().push(suite);
            }
        } else {
            let mut found = BTreeMap::new();
            let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::metadata(path).map_err(|e| Failure::file("read", path, &e))?;
            walk(folder, &mut found)?;
            let own = found.into_iter().filter(|(source, _)| source.file_name() == path.file_name());
            let suites = own.flat_map(|(_, suites)| suites).collect();
            sources.insert(path.clone(), suites);
        }
    }
    if sources.is_empty() {
        return Err(Failure::Input(format!("no functions in {}", quoted(paths.iter().map(|path| path.display())))));
    }
    Ok(sources.into_iter().map(|(source, suites)| Subject { source, suites }).collect())
}

/// Functions among the files of a folder: its sources, or its programs if it has no source. A program beside a source
/// is the hand-written version of that source, not a separate function.
fn functions(paths: &[PathBuf]) -> Vec<PathBuf> {
    let of = |is: fn(&Path) -> bool| paths.iter().filter(|path| is(path)).cloned().collect::<Vec<PathBuf>>();
    let sources = of(|path| path.extension().is_some_and(|e| e == "efsm"));
    if sources.is_empty() { of(|path| is_program(path) && path.is_file()) } else { sources }
}

fn walk(folder: &Path, sources: &mut BTreeMap<PathBuf, Vec<Suite>>) -> Result<(), Failure> {
    let paths = entries(folder)?;
    let own = functions(&paths);
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            walk(&path, sources)?;
        } else if own.contains(&path) {
            sources.entry(path).or_default();
        } else if path.extension().is_some_and(|e| e == "scenario") {
            for (function, suite) in read_suite(&path)? {
                sources.entry(function).or_default().push(suite);
            }
        }
    }
    Ok(())
}

/// Reads a scenario file. Returns the sources that it names, or else the only one in its folder, each with the
/// scenarios.
fn read_suite(path: &Path) -> Result<Vec<(PathBuf, Suite)>, Failure> {
    let text = fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    // Editors of other systems may write a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let parse = || Suite::parse(&path.display().to_string(), text).map_err(|errors| Failure::Source(Box::new(errors)));
    let suite = parse()?;
    let folder = path.parent().unwrap_or(Path::new(""));
    if !suite.functions().is_empty() {
        let named = suite.functions().iter().map(|name| {
            let source = folder.join(name);
            fs::metadata(&source).map_err(|e| Failure::file("read", &source, &e))?;
            Ok((source, parse()?))
        });
        return named.collect();
    }
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut sources = functions(&entries(here)?);
    match sources.len() {
        1 => Ok(vec![(folder.join(sources.remove(0).file_name().unwrap_or_default()), suite)]),
        n => Err(Failure::Input(format!(
            "`{}`: its folder has {n} functions; name them in the file's first line: `function NAME.efsm`, or `NAME.bpf.c`",
            path.display()
        ))),
    }
}

fn run(
    subject: &Subject,
    args: &TestArgs,
    engines: &[EngineName],
    bar: &indicatif::ProgressBar,
) -> Result<SubjectResult, Failure> {
    let path = &subject.source;
    let bytes = fs::read(path).map_err(|e| Failure::file("read", path, &e))?;
    let folder = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let mut loaded: Vec<(Choice, Loaded)> = Vec::new();
    let (scenarios, points, lines) = (Vec::new(), Vec::new(), Lines::default());
    let mut tested = SubjectResult { name: folder, source: path.clone(), scenarios, points, lines };
    let mut coverage: Vec<Coverage> = Vec::new();
    for suite in &subject.suites {
        for scenario in suite.scenarios() {
            if args.filter.as_ref().is_some_and(|filter| {
                !scenario.name().contains(filter.as_str()) && !tested.name.contains(filter.as_str())
            }) {
                continue;
            }
            bar.set_message(format!("{}: {}", tested.name, scenario.name()));
            bar.tick();
            let result = |packets, cells| ScenarioResult {
                file: suite.name().to_owned(),
                line: scenario.line(),
                name: scenario.name().to_owned(),
                packets,
                cells,
            };
            let choice = Choice::of(scenario);
            let at = match loaded.iter().position(|(other, _)| *other == choice) {
                Some(at) => at,
                None => {
                    let made = match Loaded::new(path, &bytes, &choice, engines) {
                        // Without a compiler, other functions can still be tested.
                        Err(Failure::Environment(reason)) => {
                            let cells = engines.iter().map(|&engine| (engine, Cell::NotRun(reason.clone())));
                            tested.scenarios.push(result(0, cells.collect()));
                            continue;
                        }
                        made => made?,
                    };
                    loaded.push((choice, made));
                    loaded.len() - 1
                }
            };
            let Some((_, loaded)) = loaded.get_mut(at) else { continue };
            tested.name = loaded.name().to_owned();
            let script = loaded.script(suite, scenario)?;
            let mut reference = loaded.reference(&script)?;
            coverage.extend(reference.coverage.take());
            let cells = engines.iter().map(|&engine| Ok((engine, loaded.cell(engine, &script, &reference)?)));
            tested.scenarios.push(result(script.packets(), cells.collect::<Result<_, Failure>>()?));
        }
    }
    // The parameters of most scenarios come first.
    loaded.sort_by_key(|(choice, _)| {
        let all = subject.suites.iter().flat_map(|suite| suite.scenarios());
        std::cmp::Reverse(all.filter(|scenario| Choice::of(scenario) == *choice).count())
    });
    loaded.iter().for_each(|(_, loaded)| loaded.reached(&mut tested.lines));
    if let Some(function) = loaded.first().and_then(|(_, loaded)| loaded.function()) {
        let mut reached = Reached::new(function);
        coverage.iter().for_each(|run| reached.add(run));
        tested.points = reached.points();
    }
    Ok(tested)
}

/// Points that no scenario reached: rows without a hit in any state, and each timer and default.
fn gaps(points: &[Point]) -> Vec<&Point> {
    let is_hit = |point: &&Point| {
        let twin = |other: &&Point| other.element == point.element && other.what == point.what;
        match point.what {
            PointKind::Row(_) => points.iter().filter(twin).any(|other| other.hits > 0),
            _ => point.hits > 0,
        }
    };
    let mut gaps: Vec<&Point> = Vec::new();
    for point in points.iter().filter(|point| !is_hit(point)) {
        let is_row = matches!(point.what, PointKind::Row(_));
        if !is_row || !gaps.iter().any(|other| other.element == point.element && other.what == point.what) {
            gaps.push(point);
        }
    }
    gaps
}
