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
pub(crate) use explain::{ExplainArgs, ScheduleName, schemes};
pub(crate) use hw::PredictArgs;
pub(crate) use live::{LiveArgs, LiveMode, MapArgs, MapListArgs, MapVerb, StateTime};
pub(crate) use reproduce::ReproduceArgs;
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
                            flowloom run functions/udp_firewall/udp_firewall.efsm -i inside -i outside"
    )]
    Run(RunArgs),
    /// Say what a function is and where it runs, and why not
    #[command(after_help = "Examples:\n  flowloom check functions/big_flow/big_flow.efsm --stats\n  \
                            flowloom check functions/flowlet/flowlet.efsm --target interp\n  \
                            flowloom check prog.o --target kernel")]
    Check(CheckArgs),
    /// Run targets side by side with the reference and shrink a disagreement; explore objects
    #[command(
        after_help = "Examples:\n  flowloom verify functions/big_flow/big_flow.efsm -r in.pcap --targets interp,kernel\n  \
                            flowloom verify functions/big_flow/big_flow.efsm --packets 100000 --require-coverage 100\n  \
                            flowloom verify prog.o --program rx -w case.pcapng\n  \
                            flowloom verify prog.o --program rx -r case.pcapng --state-in case.state.json --seed 1"
    )]
    Verify(VerifyArgs),
    /// Play the scenarios of functions on every engine
    #[command(after_help = "Examples:\n  flowloom test functions/\n  \
                            flowloom test functions/port_knocking --engine machine,kernel --require-coverage")]
    Test(TestArgs),
    /// Build a function for a target
    #[command(
        after_help = "Example:\n  flowloom build functions/port_knocking/port_knocking.efsm --target bpf -o out\n  \
                            ip link set dev eth0 xdp obj out/port_knocking.o sec xdp"
    )]
    Build(BuildArgs),
    /// Say what a function does as a hardware pipeline, on a trace at a rate: throughput, stalls, flushes, loss, latency
    #[command(
        after_help = "Examples:\n  flowloom predict functions/ebpf/leaky_bucket/leaky_bucket.bpf.c --timing bucket.json --zipf 50k --rate line\n  \
                            flowloom predict prog.o --timing prog.json -r in.pcap --rate 100G --scheme flows=flush"
    )]
    Predict(Box<PredictArgs>),
    /// Bring sources into one shape
    #[command(
        after_help = "Examples:\n  flowloom fmt functions/big_flow/big_flow.efsm\n  flowloom fmt --check functions/"
    )]
    Fmt(FmtArgs),
    /// Begin a function: a folder with source, scenarios, README and drawing
    #[command(after_help = "Example:\n  flowloom new my_firewall --template gate && flowloom test my_firewall")]
    New(NewArgs),
    /// Draw the state machines of a function
    #[command(after_help = "Examples:\n  flowloom draw functions/big_flow/big_flow.efsm -o big_flow.svg\n  \
                            flowloom draw functions/server_load_balancer/server_load_balancer.efsm --element bind --format dot")]
    Draw(DrawArgs),
    /// Show the hardware pipeline that a function becomes: stages, maps with their hazards, what each instruction does where
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
    /// Measure what a table or figure of a paper shows, and set it beside what is printed
    #[command(after_help = "Examples:\n  flowloom reproduce --list\n  flowloom reproduce eh-tab5 -v")]
    Reproduce(ReproduceArgs),
    /// Look into the tables of functions that run on interfaces, and change them
    Map {
        #[command(subcommand)]
        verb: MapVerb,
    },
    /// eBPF by itself: instructions without packets
    Bpf {
        #[command(subcommand)]
        verb: BpfVerb,
    },
    /// Captures: what is in them, and making them
    Trace {
        #[command(subcommand)]
        verb: TraceVerb,
    },
}

/// A function and its parameters.
#[derive(Debug, ClapArgs)]
pub(crate) struct FunctionArgs {
    /// The function: an `.efsm` source, a program in C (`.bpf.c`) or assembler (`.bpf`), an eBPF object, or a folder with one
    #[arg(value_name = "FUNCTION", value_parser = function::function_file())]
    pub(crate) path: PathBuf,
    /// Set a parameter of the function
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// The program to take where an object has several: by name, section or SECTION/NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// Take the programs of an object to be of this type, whatever their sections are called
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(crate) kind: Option<TypeName>,
}

/// A type of programs that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TypeName {
    /// XDP
    Xdp,
    /// XDP for the entries of a device map
    #[value(name = "xdp/devmap")]
    XdpDevmap,
    /// XDP for the entries of a CPU map
    #[value(name = "xdp/cpumap")]
    XdpCpumap,
}

impl From<TypeName> for ProgramKind {
    fn from(name: TypeName) -> ProgramKind {
        match name {
            TypeName::Xdp => ProgramKind::Xdp,
            TypeName::XdpDevmap => ProgramKind::XdpDevmap,
            TypeName::XdpCpumap => ProgramKind::XdpCpumap,
        }
    }
}

impl FunctionArgs {
    /// Program type that `--type` sets for the programs of an object.
    fn kind(&self) -> Option<ProgramKind> {
        self.kind.map(ProgramKind::from)
    }

    /// The named file, program and parameters.
    pub(crate) fn file(&self) -> FunctionFile {
        let (path, program, params) = (self.path.clone(), self.program.clone(), self.params.clone());
        FunctionFile { path, program, params, kind: self.kind() }
    }

    /// Loads the named function.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        Ok(Loaded::open(&self.file())?)
    }
}

/// Path of an input or output file. Rejects `-`: a user who types it means a standard stream, not a file of this name.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() {
        name if name == "-" => Err(
            "what is read and written here are files, not standard streams; name a file (`./-` for one of this name)",
        ),
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

/// Where packets come from.
#[derive(Debug, ClapArgs)]
pub(crate) struct InputArgs {
    /// Read packets from this capture (pcap, pcapng, also .xz), `-` for standard input; several are merged by time
    #[arg(short = 'r', long = "read", value_name = "CAPTURE", value_parser = capture(), group = "source")]
    pub(crate) read: Vec<PathBuf>,
    /// Take the port of a packet from its fields: 'ip.src in 10.0.0.0/8 -> 1, else 2'
    #[arg(long, value_name = "RULES", requires = "read")]
    pub(crate) port_by: Option<String>,
    /// Stop after this many packets
    #[arg(short = 'c', long, value_name = "PACKETS", requires = "source", value_parser = trace::packets)]
    pub(crate) count: Option<u64>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// An engine, by its name in the registry.
fn engine() -> impl TypedValueParser<Value = EngineName> {
    let names = ENGINES.map(|engine| PossibleValue::new(engine.name).help(engine.about));
    PossibleValuesParser::new(names)
        .try_map(|name| EngineName::by_name(&name).ok_or_else(|| format!("`{name}` is no engine")))
}

/// What a function asks of the host that it runs on.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct RoutesArgs {
    /// Interfaces, routes and neighbours (JSON) that `fib_lookup` and `check_mtu` of an object ask
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(crate) routes: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Write what leaves to this capture (.pcapng keeps ports and verdicts, otherwise pcap), `-` for standard output: the
    /// summary goes to standard error then
    #[arg(short = 'w', long = "write", value_name = "CAPTURE", value_parser = capture())]
    pub(crate) write: Option<PathBuf>,
    /// With -w -: the format
    #[arg(long, value_enum, value_name = "FORMAT", requires = "write")]
    pub(crate) format: Option<CaptureFormat>,
    /// What runs the packets
    #[arg(long, value_parser = engine(), value_name = "ENGINE", default_value = EngineName::INTERP.as_str())]
    pub(crate) engine: EngineName,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Write the records that the function has for user space (perf event arrays, ring buffers), a line of JSON each
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
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the source line of each row
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    /// Targets that must run it; where none is named all are asked, and the verifier must find it safe
    #[arg(long, value_parser = engine(), value_name = "TARGET", value_delimiter = ',')]
    pub(crate) target: Vec<EngineName>,
    /// Take warnings for errors: exit with 2 where there is one
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Print rows, registers and sizes, beside those that a paper prints
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print the eBPF instructions with their source lines, and what the verifier found out of each; also into JSON
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
    /// Without -r: packets to make for the function; of an object, how often it is run at most while it is explored
    #[arg(long, default_value_t = 20_000, conflicts_with_all = ["read", "count", "port_by"], value_parser = value_parser!(u64).range(1..=MADE_PACKETS))]
    pub(crate) packets: u64,
    #[command(flatten)]
    pub(crate) routes: RoutesArgs,
    /// What to compare with the reference (the machine; for an object the interpreter): `interp`, `kernel`, `dataflow`, or `available` for interpreter and kernel as far as they can run here
    #[arg(long, value_delimiter = ',', default_value = "available")]
    pub(crate) targets: Vec<String>,
    /// Make it a finding when a row, timer or default is reached less often
    #[arg(long, value_name = "HITS", num_args = 0..=1, default_missing_value = "1")]
    pub(crate) require_coverage: Option<u64>,
    /// With -r: start from this state (as `run --state-out` wrote it, or -w beside a capture)
    #[arg(long, value_name = "FILE", value_parser = file(), requires = "read")]
    pub(crate) state_in: Option<PathBuf>,
    /// Write the smallest trace that shows a disagreement here; of an object that is explored also the state before it, to a
    /// file of this name that ends in `.state.json`
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
    /// Only these engines; all unless said, and what cannot run here gets a dash and the reason
    #[arg(long, value_parser = engine(), value_name = "ENGINE", value_delimiter = ',')]
    pub(crate) engine: Vec<EngineName>,
    /// Only scenarios whose name, or whose function's, contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Make it a finding when a row, timer or default of a function, or a line of a program, is reached by no scenario
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

/// What a function is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// An eBPF object for XDP
    Bpf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    pub(crate) function: FunctionArgs,
    /// What to build for
    #[arg(long, value_enum)]
    pub(crate) target: Target,
    /// The folder to build into
    #[arg(short = 'o', long, default_value = ".", value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Count hits of rows, expiries and flows in maps of their own
    #[arg(long)]
    pub(crate) counters: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a new function does at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// Counts each flow's packets, up to a limit: states, a register, timers
    Flow,
    /// Lets in what answers: both directions in one context, two elements
    Gate,
    /// Hands on what is for one service: rows without states
    Table,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NewArgs {
    /// The folder to make; its last part is the function's name
    #[arg(value_name = "NAME")]
    pub(crate) folder: PathBuf,
    /// What the function does at first
    #[arg(long, value_enum, default_value_t = Template::Flow)]
    pub(crate) template: Template,
}

/// What a drawing is written as.
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
    /// Only this element; all of them unless said
    #[arg(long, value_name = "NAME")]
    pub(crate) element: Option<String>,
    /// Write to this file instead of stdout; its ending says the format
    #[arg(short = 'o', long, value_name = "FILE", value_parser = file())]
    pub(crate) output: Option<PathBuf>,
    /// The format, where the file does not say it: svg unless said
    #[arg(long, value_enum)]
    pub(crate) format: Option<Picture>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FmtArgs {
    /// Sources, and folders with sources: they are written anew where they change
    #[arg(value_name = "FILE", required_unless_present = "stdin", conflicts_with = "stdin")]
    pub(crate) files: Vec<PathBuf>,
    /// Write nothing; name the files that would change, and fail where there are any
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
