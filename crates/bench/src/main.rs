// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `make bench`: Flowloom beside the best peers, side by side in one run.
//!
//! ```text
//!  tables        keys ─► flow table : hashbrown, rte_hash
//!  functions     packets of random flows ─► machine code : the kernel     (both without their harness)
//!  cores         packets of random flows ─► machine code on two cores : on one
//!  jits          packets ─► machine code : rbpf, solana-sbpf, gcc -O2     (all without their harness)
//!  interpreters  packets ─► interpreter : that of rbpf                    (both without their harness)
//!  live          veth ─► AF_XDP, raw, kernel XDP, DPDK ─► veth : rings of AF_PACKET
//! ```
//!
//! Contenders run by turns, once to warm up and then several times; a line has the median and the quartiles. The folder
//! of the results gets `summary.json`, a list of comparisons: `{"name", "flows", "ours", "ours_ns", "peer", "peer_ns",
//! "ratio", "ratio_low", "ratio_high", "bar"}`, and curves over the number of flows as SVG. Programs without maps have
//! no flows: 0. A peer that cannot run here is left out, and the reason is printed.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

mod cores;
mod curves;
mod error;
mod functions;
mod huge;
mod interpreters;
mod jits;
mod kernel;
mod live;
mod machines;
mod measure;
mod ours;
mod packet_rings;
mod rte_hash;
mod tables;
mod tool;
mod traffic;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum};

use error::BenchError;
use kernel::Kernel;
use rte_hash::Dpdk;

/// The memory of DPDK's tables.
const DPDK_BYTES: u64 = 2 << 30;

#[global_allocator]
static ALLOCATOR: huge::HugePages = huge::HugePages;

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// The flow table beside rte_hash and hashbrown
    Tables,
    /// Functions on packets of random flows, beside the kernel
    Functions,
    /// Functions on two cores, beside one
    Cores,
    /// Programs without maps, beside rbpf, solana-sbpf and gcc
    Jits,
    /// The interpreter on programs without maps, beside that of rbpf
    Interpreters,
    /// Forwarding between veth interfaces without loss, beside a forwarder with rings of AF_PACKET (root)
    Live,
}

/// Compares Flowloom with the best peers
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder of the results
    #[arg(short, long, value_name = "DIR", default_value = "bench/out")]
    output: PathBuf,
    /// Comparisons to make; all by default
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum, default_values_t = Subject::value_variants().to_vec())]
    only: Vec<Subject>,
    /// Measured rounds of each contender
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Sizes of the peers' tables, powers of 2; the capacity of all is 7/8 of it
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1 << 10, 1 << 17, 1 << 20, 1 << 22])]
    sizes: Vec<u32>,
    /// Numbers of flows of the functions, ascending
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1_000, 100_000, 1_000_000, 4_000_000])]
    flows: Vec<u64>,
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
    let peers = arguments.output.join("peers");
    std::fs::create_dir_all(&peers).map_err(file)?;
    println!("processor: {}; commit {}", processor(), commit());
    let mut comparisons = Vec::new();
    if arguments.only.contains(&Subject::Tables) {
        let dpdk = available("rte_hash", Dpdk::start(&peers, DPDK_BYTES));
        comparisons.extend(tables::run(dpdk.as_ref(), arguments.rounds, &arguments.sizes)?);
    }
    if arguments.only.contains(&Subject::Functions) {
        let kernel = available("the kernel", Kernel::start(&peers));
        comparisons.extend(functions::run(kernel.as_ref(), &peers, arguments.rounds, &arguments.flows)?);
    }
    if arguments.only.contains(&Subject::Cores) {
        comparisons.extend(cores::run(&peers, arguments.rounds, &arguments.flows)?);
    }
    if arguments.only.contains(&Subject::Jits) {
        comparisons.extend(jits::run_all(&peers, arguments.rounds)?);
    }
    if arguments.only.contains(&Subject::Interpreters) {
        comparisons.extend(interpreters::run_all(&peers, arguments.rounds)?);
    }
    if arguments.only.contains(&Subject::Live) {
        comparisons.extend(available("live engines", live::run(&peers, arguments.rounds)).unwrap_or_default());
    }
    println!("\n{:<24} {:>9}  {:>10} : {:<10} {:>6} (quartiles)", "comparison", "flows", "ours", "peer", "ratio");
    for comparison in &comparisons {
        println!("{comparison}");
    }
    curves::write(&comparisons, &arguments.output)?;
    let path = arguments.output.join("summary.json");
    let text = serde_json::to_string_pretty(&comparisons).map_err(std::io::Error::from).map_err(file)?;
    std::fs::write(&path, text + "\n").map_err(file)
}

/// A peer; without it, the reason is printed.
fn available<T>(name: &str, peer: Result<T, BenchError>) -> Option<T> {
    peer.inspect_err(|error| eprintln!("without {name}: {error}")).ok()
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
