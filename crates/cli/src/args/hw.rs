// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments that predict a function as hardware.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use flowloom_plan::Scheme;
use flowloom_predict::Pace;
use flowloom_trace::{Rate, parse_count};

use super::explain::{FASTEST_MHZ, parse_scheme};
use super::trace::ProfileName;
use super::{FunctionArgs, InputArgs, file};

/// Help heading of the options that replace captures.
const TRAFFIC: &str = "Traffic without a capture";
/// Help heading of the options that change the plan.
const PLAN: &str = "The pipeline";

#[derive(Debug, ClapArgs)]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// 60-byte packets of this number of flows, Zipf-distributed
    #[arg(long, value_name = "FLOWS", value_parser = flows, group = "source", help_heading = TRAFFIC)]
    pub(crate) zipf: Option<u32>,
    /// 60-byte packets of this number of flows, uniformly distributed
    #[arg(long, value_name = "FLOWS", value_parser = flows, group = "source", help_heading = TRAFFIC)]
    pub(crate) flows: Option<u32>,
    /// Traffic of a profile, as `flowloom trace profiles` lists them
    #[arg(long, value_name = "NAME", value_enum, hide_possible_values = true, group = "source", help_heading = TRAFFIC)]
    pub(crate) profile: Option<ProfileName>,
    /// Packet rate: 100G bits per second on the wire, 148.8Mpps, `line` for a word in every cycle, `own` for the times
    /// of the capture
    #[arg(long, value_name = "RATE", default_value = "100G", value_parser = pace)]
    pub(crate) rate: Pace,
    /// The clock in megahertz
    #[arg(long, value_name = "MHZ", value_parser = clock, help_heading = PLAN)]
    pub(crate) clock: Option<f64>,
    /// Scheme that keeps a map consistent: none, atomic, schedule, flush
    #[arg(long, value_name = "MAP=SCHEME", value_parser = parse_scheme, help_heading = PLAN)]
    pub(crate) scheme: Vec<(String, Scheme)>,
    /// Queues of each flow scheduler
    #[arg(long, value_name = "QUEUES", value_parser = value_parser!(u32).range(1..=63), help_heading = PLAN)]
    pub(crate) queues: Option<u32>,
    /// The shell provides a packet's length with its first word, so that no program waits for the last one
    #[arg(long, conflicts_with = "timing", help_heading = PLAN)]
    pub(crate) length_given: bool,
    /// Read the stages from this file (JSON) instead of planning them
    #[arg(long, value_name = "FILE", value_parser = file(), help_heading = PLAN)]
    pub(crate) timing: Option<PathBuf>,
    /// Estimate instead of running the program on every packet: faster, but every condition on map contents
    /// is assumed to hold, so flushes, waits and losses are upper bounds
    #[arg(long)]
    pub(crate) estimate: bool,
    /// Run the program on every packet: the default
    #[arg(long, hide = true, conflicts_with = "estimate")]
    pub(crate) exact: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn clock(text: &str) -> Result<f64, String> {
    let range = 1.0..=FASTEST_MHZ as f64;
    let number = text.parse().ok().filter(|mhz| range.contains(mhz));
    number.ok_or_else(|| format!("expected MHz from 1 to {FASTEST_MHZ}, found `{text}`"))
}

fn flows(text: &str) -> Result<u32, String> {
    let number = parse_count(text).and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("expected a number of flows such as `50k`, found `{text}`"))
}

fn pace(text: &str) -> Result<Pace, String> {
    match text {
        "line" => Ok(Pace::Full),
        "own" => Ok(Pace::Own),
        _ => text.parse::<Rate>().map(Pace::At).map_err(|error| format!("{error}; `line` or `own`")),
    }
}

impl PredictArgs {
    /// Name of the traffic in messages.
    pub(crate) fn traffic(&self) -> String {
        match (&self.zipf, &self.flows, &self.profile) {
            (Some(flows), ..) => format!("{flows} Zipf-distributed flows"),
            (_, Some(flows), _) => format!("{flows} uniformly distributed flows"),
            (_, _, Some(profile)) => {
                profile.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
            }
            _ => self.input.read.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        }
    }
}
