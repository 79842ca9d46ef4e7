// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Command-line arguments.

mod bpf;
mod explain;
mod function;
mod hw;
mod live;
mod reproduce;
mod trace;

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, value_parser};
use flowloom_isa::ProgramKind;
use flowloom_session::engines::{ENGINES, EngineName};
use flowloom_session::{FunctionFile, Loaded};

use crate::failure::Failure;

pub(crate) use bpf::{BpfVerb, PluginArgs};
pub(crate) use explain::{DeviceArgs, ExplainArgs, ScheduleName, schemes};
pub(crate) use hw::PredictArgs;
pub(crate) use live::{
    DeviceKind, LiveArgs, LiveMode, MapArgs, MapListArgs, MapVerb, PassTo, Place, ReloadArgs, StateTime, TopArgs,
};
pub(crate) use reproduce::{LabArgs, LabEngine, ReproduceArgs};
pub(crate) use trace::{TraceGenArgs, TraceInfoArgs, TraceProfilesArgs, TraceVerb};

/// Maximum number of packets that `verify` generates. It holds all of them in memory, to shrink a disagreement.
const MADE_PACKETS: u64 = 10_000_000;

/// Runs stateful network functions the same way everywhere.
#[derive(Debug, Parser)]
#[command(name = "flowloom", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 fine, 1 a finding, 2 wrong use or input, 3 the environment lacks something, 130 interrupted by a signal.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run packets through a function, from captures or on interfaces
    #[command(
        after_help = "Examples:\n  flowloom run functions/port_knocking/port_knocking.efsm -r in.pcap -w out.pcapng\n  \
                            flowloom run functions/port_knocking/port_knocking.efsm -i eth0 --duration 60s\n  \
                            flowloom run functions/udp_firewall/udp_firewall.efsm -i inside -i outside\n  \
                            flowloom run functions/udp_firewall/udp_firewall.efsm -i inside -i outside --mode af_xdp\n  \
                            flowloom run functions/big_flow/big_flow.efsm -r in.pcap --trace 3 --trace 'udp.dport == 53'"
    )]
    Run(RunArgs),
    /// Describe a function, the targets that it runs on, and why not on others
    #[command(after_help = "Examples:\n  flowloom check functions/big_flow/big_flow.efsm --stats\n  \
                            flowloom check functions/flowlet/flowlet.efsm --target interp\n  \
                            flowloom check prog.o --target kernel")]
    Check(CheckArgs),
    /// Compare targets with the reference and shrink a disagreement; explore objects
    #[command(
        after_help = "Examples:\n  flowloom verify functions/big_flow/big_flow.efsm -r in.pcap --targets interp,kernel\n  \
                            flowloom verify functions/big_flow/big_flow.efsm --packets 100000 --require-coverage 100\n  \
                            flowloom verify prog.o --program rx -w case.pcapng\n  \
                            flowloom verify prog.o --program rx -r case.pcapng --state-in case.state.json --seed 1"
    )]
    Verify(VerifyArgs),
    /// Run the scenarios of functions on every engine
    #[command(after_help = "Examples:\n  flowloom test functions/\n  \
                            flowloom test functions/port_knocking --engine machine,kernel --require-coverage")]
    Test(TestArgs),
    /// Build a function for a target
    #[command(
        after_help = "Example:\n  flowloom build functions/port_knocking/port_knocking.efsm --target bpf -o out\n  \
                            ip link set dev eth0 xdp obj out/port_knocking.o sec xdp\n  \
                            flowloom build functions/ebpf/xdp2/xdp2.bpf.c --target verilog -o xdp2 && make -C xdp2 sim"
    )]
    Build(BuildArgs),
    /// Predict a function as a hardware pipeline, on a trace at a rate: throughput, stalls, flushes, loss, latency
    #[command(
        after_help = "Examples:\n  flowloom predict functions/ebpf/leaky_bucket/leaky_bucket.bpf.c --timing bucket.json --zipf 50k --rate line\n  \
                            flowloom predict prog.o --timing prog.json -r in.pcap --rate 100G --scheme flows=flush"
    )]
    Predict(Box<PredictArgs>),
    /// Format sources
    #[command(
        after_help = "Examples:\n  flowloom fmt functions/big_flow/big_flow.efsm\n  flowloom fmt --check functions/"
    )]
    Fmt(FmtArgs),
    /// Create a function: a folder with source, scenarios, README and drawing
    #[command(after_help = "Example:\n  flowloom new my_firewall --template gate && flowloom test my_firewall")]
    New(NewArgs),
    /// Draw the state machines of a function
    #[command(after_help = "Examples:\n  flowloom draw functions/big_flow/big_flow.efsm -o big_flow.svg\n  \
                            flowloom draw functions/server_load_balancer/server_load_balancer.efsm --element bind --format dot")]
    Draw(DrawArgs),
    /// Show the hardware pipeline of a function: stages, maps with their hazards, the stage of each instruction
    #[command(
        after_help = "Examples:\n  flowloom explain functions/ebpf/simple_firewall/simple_firewall.bpf.c --html firewall.html\n  \
                            flowloom explain functions/ebpf/toy/toy_printed.bpf --clock 322 -v\n  \
                            flowloom explain functions/ebpf/router/router.bpf.c --schedule blocks\n  \
                            flowloom explain prog.o --program rx --scheme flows=flush --json"
    )]
    Explain(ExplainArgs),
    /// List the packet fields that functions can name
    #[command(after_help = "Example:\n  flowloom fields tcp")]
    Fields(FieldsArgs),
    /// Measure a table or figure of a paper and compare it with the printed numbers
    #[command(
        after_help = "Examples:\n  flowloom reproduce --list\n  flowloom reproduce eh-tab5 -v\n  flowloom reproduce dp-fig --engines memory --rounds 9 -o flows.svg\n  \
        sudo flowloom reproduce fb-fig9 --json"
    )]
    Reproduce(ReproduceArgs),
    /// Read and change the tables of functions that run on interfaces
    Map {
        #[command(subcommand)]
        verb: MapVerb,
    },
    /// Watch a function that runs on interfaces: rates, verdicts, rows, tables, times, the largest flows
    #[command(after_help = "Examples:\n  flowloom top\n  flowloom top udp_firewall --interval 500ms\n  \
                            flowloom top --once --json | jq .packets")]
    Top(TopArgs),
    /// Replace the program of a function that runs on interfaces; tables with the same layout keep their entries
    #[command(after_help = "Examples:\n  flowloom reload udp_firewall functions/udp_firewall/udp_firewall.efsm\n  \
                            flowloom reload 4711\n\nA program that is refused leaves the old one running.")]
    Reload(ReloadArgs),
    /// Run eBPF programs without packets
    Bpf {
        #[command(subcommand)]
        verb: BpfVerb,
    },
    /// Describe and generate captures
    Trace {
        #[command(subcommand)]
        verb: TraceVerb,
    },
}

/// A function and its parameters.
#[derive(Debug, ClapArgs)]
pub(crate) struct FunctionArgs {
    /// The function: an `.efsm` source, a program in C (`.bpf.c`) or assembler (`.bpf`), an eBPF object, or a folder
    /// with one
    #[arg(value_name = "FUNCTION", value_parser = function::function_file())]
    pub(crate) path: PathBuf,
    /// Set a parameter of the function
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// The program of an object that has several: by name, section or SECTION/NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Program type, overriding the section names of the object
    #[arg(long = "type", value_parser = program_kind(), value_name = "TYPE")]
    pub(crate) kind: Option<ProgramKind>,
}

/// Type of a program that runs, by its name.
fn program_kind() -> impl TypedValueParser<Value = ProgramKind> {
    const KINDS: [(&str, &str, ProgramKind); 3] = [
        ("xdp", "XDP", ProgramKind::Xdp),
        ("xdp/devmap", "XDP for the entries of a device map", ProgramKind::XdpDevmap),
        ("xdp/cpumap", "XDP for the entries of a CPU map", ProgramKind::XdpCpumap),
    ];
    PossibleValuesParser::new(KINDS.map(|(name, about, _)| PossibleValue::new(name).help(about)))
        .try_map(|name| KINDS.iter().find(|(known, ..)| *known == name).map(|(.., kind)| *kind).ok_or("no kind"))
}

impl FunctionArgs {
    /// The named file, program and parameters.
    pub(crate) fn file(&self) -> FunctionFile {
        let (path, program, params) = (self.path.clone(), self.program.clone(), self.params.clone());
        FunctionFile { path, program, params, kind: self.kind }
    }

    /// Loads the named function.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        Ok(Loaded::open(&self.file())?)
    }
}

/// Path of an input or output file. Rejects `-`: a user who types it means a standard stream, not a file of this name.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() {
        name if name == "-" => {
            Err("expected a file, found a standard stream; name a file (`./-` for one of this name)")
        }
        _ => Ok(path),
    })
}

/// Path of an input or output capture, or `-` for standard input or output.
fn capture() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new()
}

/// True if a capture is a standard stream.
pub(crate) fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// True for a file, which can be read twice, and never waits.
pub(crate) fn is_file(path: &Path) -> bool {
    !is_stream(path) && path.metadata().is_ok_and(|found| found.is_file())
}

/// The format of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureFormat {
    /// pcap in nanoseconds
    Pcap,
    /// pcapng, which keeps ports and verdicts
    Pcapng,
}

fn parse_param(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=VALUE, found `{text}`"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Source of packets.
#[derive(Debug, ClapArgs)]
pub(crate) struct InputArgs {
    /// Read packets from this capture (pcap, pcapng, also .xz), `-` for standard input; several are merged by time
    #[arg(short = 'r', long = "read", value_name = "CAPTURE", value_parser = capture(), group = "source")]
    pub(crate) read: Vec<PathBuf>,
    /// Derive the port of a packet from its fields: 'ip.src in 10.0.0.0/8 -> 1, else 2'
    #[arg(long, value_name = "RULES", requires = "read")]
    pub(crate) port_by: Option<String>,
    /// Stop after this many packets
    #[arg(short = 'c', long, value_name = "PACKETS", requires = "source", value_parser = trace::packets)]
    pub(crate) count: Option<u64>,
    /// Seed of the random number generator
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// An engine, by its name in the registry.
fn engine() -> impl TypedValueParser<Value = EngineName> {
    let names = ENGINES.map(|engine| PossibleValue::new(engine.name).help(engine.about));
    PossibleValuesParser::new(names)
        .try_map(|name| EngineName::by_name(&name).ok_or_else(|| format!("unknown engine `{name}`")))
}

/// Host configuration that a function queries.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct RoutesArgs {
    /// Interfaces, routes and neighbours (JSON) that `fib_lookup` and `check_mtu` query
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) routes: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Write output packets to this capture (.pcapng keeps ports and verdicts, otherwise pcap), `-` for standard
    /// output: the summary is then printed to standard error
    #[arg(short = 'w', long = "write", value_name = "CAPTURE", value_parser = capture())]
    pub(crate) write: Option<PathBuf>,
    /// With -w -: format of the capture
    #[arg(long, value_enum, value_name = "FORMAT", requires = "write")]
    pub(crate) format: Option<CaptureFormat>,
    /// Engine that runs the packets
    #[arg(long, value_parser = engine(), value_name = "ENGINE")]
    pub(crate) engine: Option<EngineName>,
    /// Cores that run packets in user space, each with its own part of the state; a note says so if the function needs
    /// one core. With -i, one thread receives and sends for all
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=MAX_WORKERS))]
    pub(crate) workers: Option<u32>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Write the function's records for user space (perf event arrays, ring buffers), one JSON line each
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) events: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) routes: RoutesArgs,
    /// Start from this state (as --state-out wrote it)
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) state_in: Option<PathBuf>,
    /// Write the state at the end
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) state_out: Option<PathBuf>,
    /// Print single packets with the rows or lines that they took, and bytes and state before and after; the first N, or
    /// those that meet a condition; given twice, the first N of them; with -i at most 100 a second
    #[arg(long, value_name = "N|CONDITION", requires = "source")]
    pub(crate) trace: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the source line of each row
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
}

/// The most cores of a run.
const MAX_WORKERS: i64 = 256;

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    /// Targets that must run it; if none is named, all are tried, and the verifier must accept the program
    #[arg(long, value_parser = engine(), value_name = "TARGET", value_delimiter = ',')]
    pub(crate) target: Vec<EngineName>,
    /// Treat warnings as errors: exit with 2 if there is one
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Print rows, registers and sizes, compared with those in a paper
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print the eBPF instructions with their source lines and the verifier's facts about each; also in JSON
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Without -r: number of packets to generate; for an object, maximum number of runs while exploring
    #[arg(long, default_value_t = 20_000, conflicts_with_all = ["read", "count", "port_by"], value_parser = value_parser!(u64).range(1..=MADE_PACKETS))]
    pub(crate) packets: u64,
    #[command(flatten)]
    pub(crate) routes: RoutesArgs,
    /// Targets to compare with the reference (the machine; for an object the interpreter): `interp`, `kernel`,
    /// `dataflow`, or `available` for interpreter and kernel if they can run here
    #[arg(long, value_delimiter = ',', default_value = "available")]
    pub(crate) targets: Vec<String>,
    /// Cores that the targets `interp` and `jit` run packets on, each with its own part of the state; a note says so if
    /// the function needs one core
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=MAX_WORKERS))]
    pub(crate) workers: Option<u32>,
    /// Report a row, timer or default with fewer hits as a finding
    #[arg(long, value_name = "HITS", num_args = 0..=1, default_missing_value = "1")]
    pub(crate) require_coverage: Option<u64>,
    /// With -r: start from this state (as `run --state-out` wrote it, or -w beside a capture)
    #[arg(long, value_name = "FILE", value_parser = file(), requires = "read")]
    pub(crate) state_in: Option<PathBuf>,
    /// Write the smallest trace with a disagreement to this capture; for an explored object also the state before it,
    /// to a file of this name that ends in `.state.json`
    #[arg(short = 'w', long = "write", value_name = "CAPTURE", value_parser = file())]
    pub(crate) write: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TestArgs {
    /// Folders with functions and their scenarios, single functions or scenario files
    #[arg(value_name = "PATH", default_value = "functions")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only these engines [default: all]; unavailable ones get a dash and the reason
    #[arg(long, value_parser = engine(), value_name = "ENGINE", value_delimiter = ',')]
    pub(crate) engine: Vec<EngineName>,
    /// Only scenarios whose name, or whose function's, contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Report a row, timer or default of a function, or a line of a program, that no scenario reaches as a finding
    #[arg(long)]
    pub(crate) require_coverage: bool,
    /// List the scenarios
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The named engines in registry order; the default engines if none is named.
pub(crate) fn named_or_default(named: &[EngineName]) -> Vec<EngineName> {
    let is_wanted =
        |engine: &EngineName| if named.is_empty() { engine.kind().is_default } else { named.contains(engine) };
    EngineName::all().filter(is_wanted).collect()
}

impl TestArgs {
    /// The selected engines, in registry order.
    pub(crate) fn engines(&self) -> Vec<EngineName> {
        named_or_default(&self.engine)
    }
}

/// Build target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// An eBPF object for XDP
    Bpf,
    /// A hardware pipeline in SystemVerilog, with a test bench
    Verilog,
    /// An image for the FlowBlaze machine, which is programmed at run time, and its listing
    Overlay,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    /// Build target
    #[arg(long, value_enum)]
    pub(crate) target: Target,
    /// The folder to build into
    #[arg(short = 'o', long, default_value = ".", value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Count hits of rows, expiries and flows in maps of their own
    #[arg(long)]
    pub(crate) counters: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The seed of the hash functions of a pipeline's hash maps, at random so that others do not know it [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = hash_seed)]
    pub(crate) hash_seed: Option<u64>,
    /// The clock of a pipeline in megahertz [default: 250]
    #[arg(long, value_name = "MHZ", value_parser = value_parser!(u32).range(1..=explain::FASTEST_MHZ))]
    pub(crate) clock: Option<u32>,
    /// Parameters of the target machine: `paper` or `dual_stack` [default: the smallest set that the function fits]
    #[arg(long, value_name = "NAME")]
    pub(crate) parameters: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a seed, decimal or hexadecimal.
fn hash_seed(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let seed = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    seed.map_err(|_| {
        format!("expected a number from 0 to {}, decimal or hexadecimal with 0x, found `{text}`", u64::MAX)
    })
}

/// Template of a new function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// Counts each flow's packets, up to a limit: states, a register, timers
    Flow,
    /// Admits replies: both directions in one context, two elements
    Gate,
    /// Forwards packets for one service: rows without states
    Table,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NewArgs {
    /// The folder to create; its last part is the function's name
    #[arg(value_name = "NAME")]
    pub(crate) folder: PathBuf,
    /// Template of the function
    #[arg(long, value_enum, default_value_t = Template::Flow)]
    pub(crate) template: Template,
}

/// Format of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Picture {
    /// A picture for browsers, slides and documents
    Svg,
    /// The graph in the language of Graphviz
    Dot,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DrawArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    /// Only this element [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) element: Option<String>,
    /// Write to this file instead of stdout; its extension selects the format
    #[arg(short = 'o', long, value_name = "FILE", value_parser = file())]
    pub(crate) output: Option<PathBuf>,
    /// The format, if the file's extension does not select it [default: svg]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Picture>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FmtArgs {
    /// Sources, and folders with sources: changed files are rewritten
    #[arg(value_name = "FILE", required_unless_present = "stdin", conflicts_with = "stdin")]
    pub(crate) files: Vec<PathBuf>,
    /// Write nothing; list the files that would change, and fail if there are any
    #[arg(long)]
    pub(crate) check: bool,
    /// Read a source from the standard input and write it to the standard output
    #[arg(long)]
    pub(crate) stdin: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FieldsArgs {
    /// Only fields whose names begin with this
    pub(crate) prefix: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
