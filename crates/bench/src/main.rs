// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `make bench`: Flowloom beside the best peers, side by side in one run.
//!
//! Contenders run by turns, once to warm up and then several times; a line has the median and the quartiles. The folder
//! of the results gets `summary.json`, a list of comparisons: `{"name", "flows", "ours", "ours_ns", "peer", "peer_ns",
//! "ratio", "ratio_low", "ratio_high"}`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

mod error;
mod huge;
mod measure;
mod rte_hash;
mod tables;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;

use error::BenchError;
use rte_hash::Dpdk;

/// The memory of DPDK's tables.
const DPDK_BYTES: u64 = 2 << 30;

#[global_allocator]
static ALLOCATOR: huge::HugePages = huge::HugePages;

/// Compares Flowloom with the best peers
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder of the results
    #[arg(short, long, value_name = "DIR", default_value = "bench/out")]
    output: PathBuf,
    /// Measured rounds of each contender
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Sizes of the peers' tables, powers of 2; the capacity of all is 7/8 of it
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1 << 10, 1 << 17, 1 << 20, 1 << 22])]
    sizes: Vec<u32>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let file = |source| BenchError::File { path: arguments.output.clone(), source };
    std::fs::create_dir_all(&arguments.output).map_err(file)?;
    let dpdk = match Dpdk::start(&arguments.output.join("peers"), DPDK_BYTES) {
        Ok(dpdk) => Some(dpdk),
        Err(error) => {
            eprintln!("without rte_hash: {error}");
            None
        }
    };
    println!("processor: {}; commit {}", processor(), commit());
    let comparisons = tables::run(dpdk.as_ref(), arguments.rounds, &arguments.sizes)?;
    for comparison in &comparisons {
        let measure::Comparison { name, flows, ours, peer, ratio, ratio_low, ratio_high, .. } = comparison;
        println!("{name:<14} {flows:>9}  {ratio:.2} ({ratio_low:.2} to {ratio_high:.2})  {ours} : {peer}");
    }
    let path = arguments.output.join("summary.json");
    let text = serde_json::to_string_pretty(&comparisons).map_err(std::io::Error::from).map_err(file)?;
    std::fs::write(&path, text + "\n").map_err(file)
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name")).unwrap_or("unknown");
    line.trim_start_matches("model name").trim_start_matches([' ', '\t', ':']).to_owned()
}

fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = output.ok().filter(|output| output.status.success());
    commit.map_or("unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
