// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `flowloom explain`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueEnum, value_parser};
use flowloom_plan::{DEVICES, Device, Options, Scheme, Target};

use super::{FunctionArgs, file};
use crate::failure::Failure;
use crate::output::quoted;

/// Maximum clock of a plan, in MHz. Above it, not one logic level fits between two registers.
pub(super) const FASTEST_MHZ: i64 = 1000;
/// Maximum number of queues in front of a map.
const MAX_QUEUES: i64 = 1024;

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    #[command(flatten)]
    pub(crate) pipeline: PipelineArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print users of maps, passes, and every operation with its instruction and source line
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print only what machine code does ahead of lookups, which needs no pipeline
    #[arg(long, conflicts_with_all = ["html", "verbose", "device", "schedule"])]
    pub(crate) lookups: bool,
    /// Write a self-contained HTML page to this file
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) html: Option<PathBuf>,
}

/// The name for no device.
const NO_DEVICE: &str = "none";

/// The device of a pipeline.
#[derive(Debug, ClapArgs)]
pub(crate) struct DeviceArgs {
    /// The device that the pipeline must fit [default: xcu50]
    #[arg(long, value_name = "DEVICE", value_parser = device())]
    pub(crate) device: Option<String>,
}

impl DeviceArgs {
    /// The device; none if any will do.
    pub(crate) fn device(&self) -> Option<&'static Device> {
        match self.device.as_deref() {
            Some(NO_DEVICE) => None,
            Some(name) => Device::named(name),
            None => DEVICES.first(),
        }
    }
}

/// The name of a device.
fn device() -> impl TypedValueParser<Value = String> {
    let devices = DEVICES.iter().map(|device| PossibleValue::new(device.name).help(device.about));
    PossibleValuesParser::new(devices.chain([PossibleValue::new(NO_DEVICE).help("No limits")]))
}

/// Scheduling of operations into stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleName {
    /// As soon as its operands are ready, across basic blocks
    Dataflow,
    /// Block by block, as the papers' tools do, for comparison
    Blocks,
}

/// Options of a pipeline.
#[derive(Debug, ClapArgs)]
pub(crate) struct PipelineArgs {
    /// Scheduling of operations into stages
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ScheduleName::Dataflow)]
    pub(crate) schedule: ScheduleName,
    /// The clock in megahertz
    #[arg(long, value_name = "MHZ", default_value_t = 250, value_parser = value_parser!(u32).range(1..=FASTEST_MHZ))]
    pub(crate) clock: u32,
    /// Scheme that keeps a map consistent (`none`, `atomic`, `schedule`, `flush`), overriding the planner's choice
    #[arg(long, value_name = "MAP=SCHEME", value_parser = parse_scheme)]
    pub(crate) scheme: Vec<(String, Scheme)>,
    /// Queues before a scheduled map [default: 8]
    #[arg(long, value_name = "QUEUES", value_parser = value_parser!(u32).range(1..=MAX_QUEUES))]
    pub(crate) queues: Option<u32>,
    /// The shell provides a packet's length with its first word, so that no program waits for the last one
    #[arg(long)]
    pub(crate) length_given: bool,
    /// Carry all values and all bytes of the window to the end
    #[arg(long)]
    pub(crate) no_prune: bool,
}

impl PipelineArgs {
    /// Returns the planner options.
    ///
    /// # Errors
    /// A map has two schemes.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let usual = Options::default();
        Ok(Options {
            target: Target::at(self.clock),
            schemes: schemes(&self.scheme)?,
            queues: self.queues.unwrap_or(usual.queues),
            length_given: self.length_given,
            prune: !self.no_prune,
            ..usual
        })
    }
}

/// Returns the scheme of each map that `--scheme` names.
///
/// # Errors
/// A map has two schemes.
pub(crate) fn schemes(given: &[(String, Scheme)]) -> Result<BTreeMap<String, Scheme>, Failure> {
    let mut schemes = BTreeMap::new();
    for (map, scheme) in given {
        if let Some(other) = schemes.insert(map.clone(), *scheme).filter(|other| other != scheme) {
            return Err(Failure::Input(format!(
                "--scheme names `{map}` twice, with `{}` and `{}`; a map has one scheme",
                other.as_str(),
                scheme.as_str()
            )));
        }
    }
    Ok(schemes)
}

/// Parses `MAP=SCHEME`.
pub(super) fn parse_scheme(text: &str) -> Result<(String, Scheme), String> {
    let (map, name) = text.split_once('=').ok_or_else(|| format!("expected MAP=SCHEME, found `{text}`"))?;
    let scheme = Scheme::ALL.into_iter().find(|scheme| scheme.as_str() == name.trim()).ok_or_else(|| {
        format!("unknown scheme `{name}`, expected one of {}", quoted(Scheme::ALL.map(Scheme::as_str)))
    })?;
    Ok((map.trim().to_owned(), scheme))
}
