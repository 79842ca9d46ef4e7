// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `flowloom trace`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand, ValueEnum, value_parser};
use flowloom_trace::{Profile, Protocol, Rate, parse_count};

use super::function::function_file;
use super::{file, parse_param};

/// Help heading of the options of profiles.
const OF_PROFILES: &str = "Options of profiles";

/// Names of the arguments that request traffic for a function.
const OF_FUNCTIONS: [&str; 2] = ["function", "function_option"];

#[derive(Debug, Subcommand)]
pub(crate) enum TraceVerb {
    /// Describe a capture
    #[command(
        after_help = "Examples:\n  flowloom trace info in.pcap.xz\n  flowloom trace info chi15.pcap --profile chi15"
    )]
    Info(TraceInfoArgs),
    /// Generate traffic: of a profile that papers measured, of a pattern, or for a function
    #[command(
        override_usage = "flowloom trace gen --profile <NAME> [OPTIONS] --write <CAPTURE>\n       \
                          flowloom trace gen <FUNCTION> [OPTIONS] --write <CAPTURE>",
        after_help = "For a function: traffic that reaches every row, timer and default of it.\n\
                      Of a profile: traffic with the packet lengths, active flows and new flows that papers print; \
                      `flowloom trace profiles` lists them.\n\n\
                      Examples:\n  flowloom trace gen functions/big_flow/big_flow.efsm -c 20000 -w big.pcap\n  \
                      flowloom trace gen --profile chi15 --snaplen 128 -w chi15.pcap\n  \
                      flowloom trace gen --profile zipf --flows 50k --rate 100G --size 60 -c 5M -w zipf.pcap"
    )]
    Gen(Box<TraceGenArgs>),
    /// List the profiles of traffic, with what the papers print
    #[command(after_help = "Example:\n  flowloom trace profiles --json")]
    Profiles(TraceProfilesArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TraceInfoArgs {
    /// The captures; several are merged by time
    #[arg(required = true, value_name = "CAPTURE", value_parser = file())]
    pub(crate) captures: Vec<PathBuf>,
    /// Compare the figures with those in a paper about this trace
    #[arg(long, value_name = "NAME", value_enum, hide_possible_values = true)]
    pub(crate) profile: Option<ProfileName>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TraceProfilesArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TraceGenArgs {
    /// The function that the traffic is for, an `.efsm` source
    #[arg(value_name = "FUNCTION", required_unless_present_any = ["function_option", "profile"], value_parser = function_file())]
    pub(crate) function: Option<PathBuf>,
    /// The same as FUNCTION
    #[arg(long = "function", id = "function_option", value_name = "FUNCTION", conflicts_with = "function", value_parser = function_file())]
    pub(crate) function_option: Option<PathBuf>,
    /// Set a parameter of the function
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param, conflicts_with = "profile")]
    pub(crate) params: Vec<(String, String)>,
    /// Profile of the traffic
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        conflicts_with_all = OF_FUNCTIONS,
        help_heading = OF_PROFILES
    )]
    pub(crate) profile: Option<ProfileName>,
    /// Stop after this number of packets [default: for a function 20k, of a pattern 1M]
    #[arg(short = 'c', long, alias = "packets", value_name = "PACKETS", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// Seed of the random number generator
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The capture to write
    #[arg(short = 'w', long = "write", value_name = "CAPTURE", value_parser = file())]
    pub(crate) write: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Stop after this time of the capture: 500ms, 10s, 2m [default: 10s of the trace's own time]
    #[arg(long, value_name = "TIME", value_parser = duration_ns, conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) duration: Option<u64>,
    /// Packet rate, without gaps: 40G bits per second, or 5Mpps [default: the trace's own time; of a pattern 10G]
    #[arg(long, value_name = "RATE", conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) rate: Option<Rate>,
    /// Truncate packets to this number of bytes, as a capture does
    #[arg(
        short = 's',
        long,
        value_name = "BYTES",
        value_parser = value_parser!(u32),
        conflicts_with_all = OF_FUNCTIONS,
        help_heading = OF_PROFILES
    )]
    pub(crate) snaplen: Option<u32>,
    /// Flows that are active in 10 s; of a pattern, flows at a time
    #[arg(long, value_name = "FLOWS", value_parser = count, conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) flows: Option<u64>,
    /// Length of every packet, without frame check sequence [default: the trace's mixture; of a pattern 60]
    #[arg(long, value_name = "BYTES", conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) size: Option<u32>,
    /// Zipf exponent, for zipf and churn [default: 1 and 0]
    #[arg(long, value_name = "NUMBER", conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) exponent: Option<f64>,
    /// New flows per minute, for churn [default: 100k]
    #[arg(long, value_name = "FLOWS", value_parser = count, conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) new_flows: Option<u64>,
    /// Share of hosts with IPv6; of a pattern, of flows
    #[arg(long, value_name = "PERCENT", conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) ipv6: Option<f64>,
    /// Protocol of a pattern [default: udp]
    #[arg(long, value_parser = protocol(), conflicts_with_all = OF_FUNCTIONS, help_heading = OF_PROFILES)]
    pub(crate) protocol: Option<Protocol>,
}

/// A profile as an argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProfileName(pub(crate) Profile);

impl ValueEnum for ProfileName {
    fn value_variants<'a>() -> &'a [ProfileName] {
        const ALL: [ProfileName; Profile::ALL.len()] = {
            let mut all = [ProfileName(Profile::Uniform); Profile::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = ProfileName(Profile::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.summary()))
    }
}

/// Protocol of a pattern, by its name.
fn protocol() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new([
        PossibleValue::new("udp").help("Datagrams"),
        PossibleValue::new("tcp")
            .help("Connections: the first packet of a flow is a SYN, the last one of a flow that ends a FIN"),
    ])
    .try_map(|name| match name.as_str() {
        "udp" => Ok(Protocol::Udp),
        "tcp" => Ok(Protocol::Tcp),
        _ => Err("no protocol"),
    })
}

/// Parses a number of packets, at least one.
pub(super) fn packets(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("expected at least one packet".to_owned()),
        number => Ok(number),
    }
}

fn count(text: &str) -> Result<u64, String> {
    parse_count(text).ok_or_else(|| "expected a number such as `20000`, `50k` or `5M`".to_owned())
}

fn duration_ns(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 6] = [
        ("ns", 1),
        ("us", 1000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let expected = || "expected a time such as `500ms`, `10s` or `2m`".to_owned();
    let at = text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(expected)?;
    let (number, unit) = text.split_at(at);
    let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
    // The fraction is rounded down to whole nanoseconds.
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| if text.is_empty() { Some(0) } else { parse_count(text) };
    let part = digits(fraction).ok_or_else(expected)?.checked_mul(scale).ok_or_else(expected)?;
    let part = 10u64.checked_pow(fraction.len() as u32).map(|tens| part / tens).ok_or_else(expected)?;
    let whole = parse_count(whole).and_then(|whole| whole.checked_mul(scale)).ok_or_else(expected)?;
    whole.checked_add(part).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, ns) in [
            ("10s", 10_000_000_000),
            ("500ms", 500_000_000),
            ("1.5s", 1_500_000_000),
            ("0.25ms", 250_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("7ns", 7),
            ("20us", 20_000),
        ] {
            assert_eq!(duration_ns(text), Ok(ns), "{text}");
        }
        for text in ["", "10", "s", "10x", "1e3s", "-1s", "1.5.2s", "99999999999h", "1.000000000000000000000000s"] {
            assert!(duration_ns(text).is_err(), "{text}");
        }
    }
}
