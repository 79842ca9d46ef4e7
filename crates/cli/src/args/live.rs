// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments about interfaces, and about the functions that run on them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use flowloom_exec::Mode;
use flowloom_session::parse_time;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::parse_param;

/// The way in which packets of interfaces are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveMode {
    /// In the kernel, as XDP in the driver
    Native,
    /// In the kernel, as XDP on socket buffers, with every driver
    Skb,
    /// In user space, through AF_XDP sockets
    #[value(name = "af_xdp", alias = "af-xdp")]
    AfXdp,
    /// In user space, through raw sockets, with every driver
    Raw,
    /// In user space, at the other end of TAP interfaces, which are created if they do not exist
    Tap,
    /// In user space, through drivers of DPDK: NAME is a PCI address or a virtual device with its arguments
    Dpdk,
}

impl LiveMode {
    /// The name, as typed.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LiveMode::Native => "native",
            LiveMode::Skb => "skb",
            LiveMode::AfXdp => "af_xdp",
            LiveMode::Raw => "raw",
            LiveMode::Tap => "tap",
            LiveMode::Dpdk => "dpdk",
        }
    }

    /// The place where the function runs.
    pub(crate) fn place(self) -> Place {
        match self {
            LiveMode::Native => Place::Kernel(Mode::Native),
            LiveMode::Skb => Place::Kernel(Mode::Skb),
            LiveMode::AfXdp => Place::User(DeviceKind::AfXdp),
            LiveMode::Raw => Place::User(DeviceKind::Raw),
            LiveMode::Tap => Place::User(DeviceKind::Tap),
            LiveMode::Dpdk => Place::User(DeviceKind::Dpdk),
        }
    }
}

/// The place where a function on interfaces runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the kernel, attached in this mode.
    Kernel(Mode),
    /// In this process, with packets from such a device.
    User(DeviceKind),
}

/// A kind of device of `flowloom-ports`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    AfXdp,
    Raw,
    Tap,
    Dpdk,
}

impl DeviceKind {
    /// True if its interfaces are those of the network stack, which can receive passed packets.
    pub(crate) fn has_stack(self) -> bool {
        matches!(self, DeviceKind::AfXdp | DeviceKind::Raw)
    }
}

/// The receiver of passed packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PassTo {
    /// The network stack, as if the interface had received them.
    Stack,
    /// The other end of the link of this interface.
    Device(String),
}

/// Running on interfaces.
#[derive(Debug, ClapArgs)]
pub(crate) struct LiveArgs {
    /// Run on this interface until Ctrl-C; the first is port 1, the next port 2; PORT=NAME sets the port
    #[arg(
        short = 'i',
        long = "interface",
        value_name = "[PORT=]NAME",
        group = "source",
        conflicts_with_all = ["read", "write", "port_by", "seed", "events"]
    )]
    pub(crate) interface: Vec<String>,
    /// With -i: where the function runs, and how it receives packets
    #[arg(short = 'm', long, value_enum, default_value_t = LiveMode::Native, requires = "interface", conflicts_with = "read")]
    pub(crate) mode: LiveMode,
    /// With -i: stop after this time (500ms, 10s, 2m)
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "interface", conflicts_with = "read")]
    pub(crate) duration: Option<Duration>,
    /// With -i: time between two reports
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1s", requires = "interface", conflicts_with = "read")]
    pub(crate) interval: Duration,
    /// With -i: print the final report only
    #[arg(short = 'q', long, requires = "interface", conflicts_with = "read")]
    pub(crate) quiet: bool,
    /// With -i, in user space: receiver of passed packets, `stack` or an interface through which they are sent; the
    /// default is `stack` with af_xdp and raw
    #[arg(long, value_name = "stack|DEV", value_parser = parse_pass_to, requires = "interface", conflicts_with = "read")]
    pub(crate) pass_to: Option<PassTo>,
    /// With -i, in user space: never sleep, which lowers latency and takes a whole CPU; with af_xdp this thread also
    /// runs the driver, for at most this time at once
    #[arg(long, value_name = "TIME", value_parser = parse_time, num_args = 0..=1, require_equals = true, default_missing_value = "20us", requires = "interface", conflicts_with = "read")]
    pub(crate) busy_poll: Option<Duration>,
    /// With --mode dpdk: no huge pages, which suffices for virtual devices
    #[arg(long, requires = "interface", conflicts_with = "read")]
    pub(crate) no_huge_pages: bool,
    /// With -i: do not count verdicts and rows, which saves instructions for each packet
    #[arg(long, requires = "interface", conflicts_with_all = ["count", "read"])]
    pub(crate) no_counters: bool,
    /// With -i: serve metrics for Prometheus at http://ADDRESS/metrics; a number is a port of 127.0.0.1
    #[arg(long, value_name = "[IP:]PORT", value_parser = parse_metrics, requires = "interface", conflicts_with = "read")]
    pub(crate) metrics: Option<SocketAddr>,
    /// With -i and --state-in: time at which the state was written, in nanoseconds of its clock, to which its
    /// deadlines relate; `now` if it is this host's clock
    #[arg(long, value_name = "NS", value_parser = parse_state_time, requires_all = ["interface", "state_in"], conflicts_with = "read")]
    pub(crate) state_time: Option<StateTime>,
}

/// The time of a state's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateTime {
    /// It is this host's clock.
    Now,
    /// Nanoseconds of another clock, when the state was written.
    At(u64),
}

fn parse_pass_to(text: &str) -> Result<PassTo, String> {
    match text {
        "" => Err("expected `stack` or an interface".to_owned()),
        "stack" => Ok(PassTo::Stack),
        _ => Ok(PassTo::Device(text.to_owned())),
    }
}

fn parse_metrics(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => text.parse().map_err(|_| format!("expected PORT or IP:PORT, found `{text}`")),
    }
}

fn parse_state_time(text: &str) -> Result<StateTime, String> {
    match text {
        "now" => Ok(StateTime::Now),
        _ => text.parse().map(StateTime::At).map_err(|_| format!("expected nanoseconds or `now`, found `{text}`")),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum MapVerb {
    /// List functions that run on interfaces, and their maps
    #[command(after_help = "Example:\n  flowloom map list")]
    List(MapListArgs),
    /// Print all entries of a map
    #[command(
        after_help = "Examples:\n  flowloom map dump port_knocking\n  flowloom map dump port_knocking/knock --json\n  \
                            flowloom map dump id 12 --raw --json"
    )]
    Dump(MapArgs),
    /// Print one entry; exit code 1 if it does not exist
    #[command(after_help = "Examples:\n  flowloom map lookup port_knocking key ip.src=10.0.0.1\n  \
                      flowloom map lookup id 12 key hex 00 00 00 00 00 00 00 00 00 00 ff ff 0a 00 00 01")]
    Lookup(MapArgs),
    /// Write one entry; fields that are not named are unchanged
    #[command(after_help = "Examples:\n  \
                            flowloom map update port_knocking key ip.src=10.0.0.1 value state=open idle_ns=1m idle_deadline=+1m\n  \
                            flowloom map update name fl_ports key 2 0 0 0 value 5 0 0 0 noexist")]
    Update(MapArgs),
    /// Remove one entry; exit code 1 if it does not exist
    #[command(after_help = "Example:\n  flowloom map delete port_knocking key ip.src=10.0.0.1")]
    Delete(MapArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MapListArgs {
    /// Include maps that other tools have loaded
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(short = 'j', long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MapArgs {
    /// The map (FUNCTION, FUNCTION/MAP, PID/MAP, `id N`, `name NAME`, `pinned PATH`), then `key ...`, `value ...` and
    /// `any`, `exist` or `noexist`, if the verb takes them; keys and values are bytes as in `bpftool`, or NAME=VALUE
    #[arg(required = true, value_name = "MAP", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    /// Read the names of states, registers and key fields from this source or object
    #[arg(short = 'f', long, value_name = "FUNCTION")]
    pub(crate) function: Option<PathBuf>,
    /// With -f: set a parameter of the source
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param, requires = "function")]
    pub(crate) params: Vec<(String, String)>,
    /// Print JSON
    #[arg(short = 'j', long)]
    pub(crate) json: bool,
    /// Print bytes, as `bpftool` does without types
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TopArgs {
    /// The run: name of the function or process id; needed if there are several
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1s")]
    pub(crate) interval: Duration,
    /// Print one report of one interval and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON, one line for each interval
    #[arg(short = 'j', long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReloadArgs {
    /// The run: name of the function or process id
    #[arg(value_name = "RUN")]
    pub(crate) run: String,
    /// The source, program or object [default: the run's own file, read again]
    #[arg(value_name = "FUNCTION", value_parser = super::function::function_file())]
    pub(crate) path: Option<PathBuf>,
    /// Set a parameter of the source
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param, requires = "path")]
    pub(crate) params: Vec<(String, String)>,
    /// The program of an object that has several
    #[arg(long, value_name = "NAME", requires = "path")]
    pub(crate) program: Option<String>,
    /// Print JSON
    #[arg(short = 'j', long)]
    pub(crate) json: bool,
}
