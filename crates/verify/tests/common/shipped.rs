// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of the repository, found in its folders, and the parameters that they are tested with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::Datapath;
use flowloom_lower::unsupported_by_kernel;
use flowloom_testkit::is_selected;
use flowloom_verify::{
    Arrival, CompareOptions, Point, PointKind, Reached, ShrinkOptions, Stimulus, StimulusOptions, compare,
};

use super::engines;

/// A function with each of its parameter sets.
pub struct Shipped {
    /// Name of its file.
    pub name: String,
    /// The function with each parameter set; all have the same elements and rows.
    pub variants: Vec<Variant>,
}

/// A function with one parameter set.
pub struct Variant {
    pub function: Arc<Function>,
    /// The parameters as written on the command line.
    pub params: String,
}

/// Parameters as (name, value) pairs.
type Set = &'static [(&'static str, &'static str)];

/// Parameter sets of functions whose defaults make some points unreachable or rare in a trace: limits that take
/// thousands of packets of one flow, tables that take thousands of flows to fill.
const SETS: &[(&str, &[Set])] = &[
    ("conntrack", &[&[("open_first", "1"), ("open_last", "1")], &[("loose", "1")]]),
    ("conntrack_paper", &[&[], SHORT]),
    ("conntrack_paper_advancing", &[&[], SHORT]),
    ("conntrack_paper_fixed", &[&[], SHORT]),
    ("conntrack_paper_trusted", &[&[], SHORT]),
    ("dynamic_nat", &[&[], &[("first_port", "0xfffe")]]),
    ("policer", &[&[], &[("burst", "3")]]),
    ("subscriber_quota", &[&[], &[("quota", "1000"), ("alert", "300")]]),
    ("super_spreader", &[&[], &[("limit", "3")]]),
];

/// Timeouts of seconds in place of hours.
const SHORT: Set = &[("handshake", "1s"), ("established", "3s"), ("ending", "2s")];

/// Points that traces never or rarely reach, with the reason. All other points reach the required number of hits.
const RARE: &[Rare] = &[
    Rare {
        functions: &["conntrack"],
        element: "connection",
        what: PointKind::Row(18),
        state: Some("crossed"),
        least: None,
        reason: "here `a_ack` and `b_end` are equal, so that the row before takes the packet",
    },
    Rare {
        functions: &["conntrack"],
        element: "connection",
        what: PointKind::Row(18),
        state: Some("syn_received"),
        least: Some(5),
        reason: "B has to send data before A has acknowledged anything, and then a reset with the number behind it",
    },
    ended("half", 0),
    ended("closed", 0),
    ended("reset", 5),
];

/// The connection of `opening` expires at the same time.
const fn ended(state: &'static str, least: u64) -> Rare {
    Rare {
        functions: &[
            "conntrack_paper",
            "conntrack_paper_advancing",
            "conntrack_paper_fixed",
            "conntrack_paper_trusted",
        ],
        element: "closing",
        what: PointKind::IdleTimeout,
        state: Some(state),
        least: Some(least),
        reason: "`opening` forgets in the same moment: a new handshake has to be over before the next sweep",
    }
}

struct Rare {
    functions: &'static [&'static str],
    element: &'static str,
    what: PointKind,
    state: Option<&'static str>,
    /// Required hits nevertheless; `None` where it is unreachable.
    least: Option<u64>,
    reason: &'static str,
}

impl Rare {
    fn is(&self, point: &Point) -> bool {
        self.element == point.element && self.what == point.what && self.state == point.state.as_deref()
    }
}

/// A function of the folder `functions` with parameter values: `conntrack`, or
/// `conntrack_paper/conntrack_paper_fixed`.
pub fn function(name: &str, params: &[(&str, &str)]) -> Arc<Function> {
    function_with(name, params, |text| text)
}

/// The same, with its text changed.
pub fn function_with(name: &str, params: &[(&str, &str)], change: impl Fn(String) -> String) -> Arc<Function> {
    let (folder, file) = name.split_once('/').unwrap_or((name, name));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../functions/{folder}/{file}.efsm"));
    let params: Vec<_> = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    compiled(file, &change(read(&path)), &params)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn compiled(name: &str, text: &str, params: &[(String, String)]) -> Arc<Function> {
    let (function, _) = flowloom_efsm::compile(name, text, params).unwrap_or_else(|errors| panic!("{name}: {errors}"));
    Arc::new(function)
}

/// The functions in `functions/` and in the corpus.
pub fn shipped() -> Vec<Shipped> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = entries(&root.join("corpus"));
    sources.extend(entries(&root.join("functions")).iter().flat_map(|folder| entries(folder)));
    sources.retain(|path| path.extension().is_some_and(|e| e == "efsm"));
    let found: Vec<Shipped> = sources.iter().map(|path| load(path)).collect();
    for (name, _) in SETS {
        assert!(found.iter().any(|function| function.name == *name), "there is no function `{name}` any more");
    }
    found.into_iter().filter(|function| is_selected(&function.name)).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn load(path: &Path) -> Shipped {
    let name = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
    let text = read(path);
    const DEFAULTS: &[Set] = &[&[]];
    let sets = SETS.iter().find(|(of, _)| *of == name).map_or(DEFAULTS, |(_, sets)| sets);
    let variant = |set: &Set| {
        let mut params = ports(&text);
        params.extend(set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let function = compiled(&name, &text, &params);
        let params: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Variant { function, params: params.join(" ") }
    };
    Shipped { variants: sets.iter().map(variant).collect(), name }
}

/// Optional ports, set to 2 for the first and 1 for the second, so that packets do not leave by their input port.
pub fn ports(text: &str) -> Vec<(String, String)> {
    let names = text.lines().filter_map(|line| Some(line.strip_prefix("param ")?.split_once(": port;")?.0.trim()));
    names.zip([2, 1]).map(|(name, port)| (name.to_owned(), port.to_string())).collect()
}

impl Shipped {
    /// Reason why the kernel cannot run it, if it cannot.
    pub fn no_kernel(&self) -> Option<String> {
        let function = &self.variants[0].function;
        unsupported_by_kernel(function).first().map(|lack| lack.render(function))
    }

    fn rare(&self, point: &Point) -> Option<&'static Rare> {
        RARE.iter().find(|rare| rare.functions.contains(&self.name.as_str()) && rare.is(point))
    }

    /// The points with too few hits: fewer than `least`, or than the exception for them allows.
    pub fn gaps(&self, reached: &Reached<'_>, least: u64) -> Vec<Point> {
        let is_gap =
            |point: &Point| self.rare(point).is_none_or(|rare| point.hits < rare.least.unwrap_or(0).min(least));
        reached.gaps(least).into_iter().filter(is_gap).collect()
    }

    /// The exceptions, with reasons; fails where a point that counts as unreachable was reached.
    pub fn excuses(&self, reached: &Reached<'_>) -> String {
        let mut text = String::new();
        for point in reached.points() {
            let Some(Rare { least, reason, .. }) = self.rare(&point) else { continue };
            let Point { element, what, state, hits, .. } = &point;
            let state = state.as_deref().unwrap_or("-");
            if let Some(least) = least {
                text.push_str(&format!("rare: {element}, {what} in {state}, {least} are asked for: {reason}\n"));
                continue;
            }
            assert_eq!(*hits, 0, "{}: {element}, {what} in {state} is reached, strike out: {reason}", self.name);
            text.push_str(&format!("never: {element}, {what} in {state}: {reason}\n"));
        }
        text
    }
}

/// Result of one trace: packets compared and refused by each engine.
pub type Compared = Vec<(&'static str, u64, u64)>;

/// The engines of a function, loaded once for any number of traces.
pub struct Subject<'v> {
    variant: &'v Variant,
    options: CompareOptions,
    targets: Vec<(&'static str, Box<dyn Datapath>)>,
}

impl Subject<'_> {
    /// Loads all engines; fails if one does not take the function.
    pub fn new(variant: &Variant, kernel: bool) -> Subject<'_> {
        let function = &variant.function;
        let program = engines::program(function);
        let options = engines::options(function, &program);
        let kernel = kernel && unsupported_by_kernel(function).is_empty();
        let named = |(engine, target): (&'static str, engines::Engine)| {
            let fails = |error| panic!("{} ({}) on {engine}: {error}", function.name, variant.params);
            (engine, target.unwrap_or_else(fails))
        };
        let targets = engines::all(function, &program, kernel).into_iter().map(named).collect();
        Subject { variant, options, targets }
    }

    /// Compares every engine with the reference machine on a trace and adds the reference's coverage to `reached`;
    /// fails at a disagreement.
    pub fn verify(&mut self, packets: &[Arrival], reached: &mut Reached<'_>) -> Compared {
        let Variant { function, params } = self.variant;
        let mut compared = Vec::new();
        for (engine, target) in &mut self.targets {
            let name = format!("{} ({params}) on {engine}", function.name);
            let mut machine = Machine::new(Arc::clone(function));
            let report = compare(&mut machine, target.as_mut(), packets, &self.options);
            let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
            if let Some(disagreement) = &report.disagreement {
                let limits = ShrinkOptions::default();
                let smallest = engines::smallest(&mut machine, target.as_mut(), packets, &self.options, &limits);
                panic!("{name}: {disagreement}\n{smallest}");
            }
            if compared.is_empty() {
                reached.add(&machine.coverage());
            }
            compared.push((*engine, report.packets_compared, report.packets_refused()));
        }
        compared
    }
}

/// Packets generated for a function.
pub fn made(function: &Arc<Function>, seed: u64, count: usize) -> Vec<Arrival> {
    Stimulus::new(Arc::clone(function), seed, StimulusOptions::of(function)).take_packets(count)
}
