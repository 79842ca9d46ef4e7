// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `flowloom reproduce`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use flowloom_session::parse_time;

/// The place where a measured function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LabEngine {
    /// Packets in memory
    Memory,
    /// XDP in the kernel
    Kernel,
    /// AF_XDP sockets
    #[value(name = "af_xdp", alias = "af-xdp")]
    AfXdp,
    /// Raw sockets
    Raw,
    /// TAP interfaces
    Tap,
    /// DPDK on raw sockets (`net_af_packet`)
    Dpdk,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReproduceArgs {
    /// The table or figure: an id that --list prints
    #[arg(value_name = "ID", required_unless_present = "list", conflicts_with = "list")]
    pub(crate) id: Option<String>,
    /// List the tables and figures
    #[arg(long)]
    pub(crate) list: bool,
    /// The folder with the functions that are measured
    #[arg(long, value_name = "FOLDER", default_value = "functions")]
    pub(crate) functions: PathBuf,
    #[command(flatten)]
    pub(crate) lab: LabArgs,
    /// Draw the figure as SVG, or write its values as CSV if the file ends in `.csv`
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "list")]
    pub(crate) output: Option<PathBuf>,
    /// Print the derivation of each number
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of figures that are measured on this machine.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "Options of dp-fig, fb-fig7 and fb-fig9")]
pub(crate) struct LabArgs {
    /// Measured rounds, of which the median and the quartiles are printed [default: 5]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Time of a rate over wires [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) time: Option<Duration>,
    /// Packets of a measurement: from memory [default: 1048576], or round trips [default: 1000]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=100_000_000))]
    pub(crate) packets: Option<u32>,
    /// Numbers of flows of dp-fig [default: 1000,10000,100000,1000000]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=4_194_304))]
    pub(crate) flows: Vec<u64>,
    /// Sizes of packets in bytes on the wire, with the check sequence [default: those of the figure]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value_parser!(u16).range(64..=1518))]
    pub(crate) sizes: Vec<u16>,
    /// Engines [default: all that the figure has and that can run here]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub(crate) engines: Vec<LabEngine>,
    /// Numbers of cores of fb-fig7 [default: 1,2]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=2))]
    pub(crate) cores: Vec<u32>,
}

impl LabArgs {
    /// The options that are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let all = [
            ("--rounds", self.rounds.is_some()),
            ("--time", self.time.is_some()),
            ("--packets", self.packets.is_some()),
            ("--flows", !self.flows.is_empty()),
            ("--sizes", !self.sizes.is_empty()),
            ("--engines", !self.engines.is_empty()),
            ("--cores", !self.cores.is_empty()),
        ];
        all.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }
}
