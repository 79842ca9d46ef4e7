// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic profiles, and the figures that the papers print for them.

use serde::Serialize;

use super::host::AddressPlan;

/// A traffic profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A university's data centre [FlowBlaze table 6].
    Uni1,
    /// Another university's data centre [FlowBlaze table 6].
    Uni2,
    /// A link of the WIDE backbone in 2015 [FlowBlaze table 6].
    Mawi15,
    /// A link of an Internet provider in Chicago in 2015, one direction [FlowBlaze table 6].
    Chi15,
    /// CAIDA, 2019-01-17 [eHDL 5.3].
    Caida2019,
    /// MAWI, 2021-03-22 [eHDL 5.3].
    Mawi2021,
    /// Every flow is equally likely.
    Uniform,
    /// The n-th flow has probability proportional to n^-exponent [eHDL A.1].
    Zipf,
    /// One flow: all packets access one flow context.
    Single,
    /// Round-robin over the flows.
    Alternate,
    /// A fixed number of new flows per minute, each replacing the oldest [SwitchNIC 6].
    Churn,
}

/// The figures that a paper prints for a trace.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PaperRow {
    /// Citation key, as in `docs/papers.md`.
    pub source: &'static str,
    /// Mean packet length.
    pub mean_len_bytes: f64,
    /// Maximum number of flows active in 10 s, by source address, address pair and 5-tuple.
    pub active_in_10s: [Option<u64>; 3],
    /// Maximum number of new flows in a millisecond, by the same keys.
    pub new_per_ms: [Option<u64>; 3],
    /// Fractions of packets by length.
    pub sizes: &'static [SizeShare],
}

/// A fraction of packets by length, as stated in a paper's text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeShare {
    /// The smallest length of the class.
    pub from_bytes: u32,
    /// Exclusive upper bound of the class; `None` if unbounded.
    pub below_bytes: Option<u32>,
    /// The fraction, from 0 to 1.
    pub share: f64,
}

const fn share(from_bytes: u32, below_bytes: Option<u32>, share: f64) -> SizeShare {
    SizeShare { from_bytes, below_bytes, share }
}

/// Parameters of a network's traffic. The papers print the first three; the others are our choice, explained in the
/// book's page on traffic.
#[derive(Debug, Clone)]
pub(super) struct Model {
    /// Flows active in 10 s, by the three keys.
    pub(super) active: [f64; 3],
    /// Maximum number of new flows in a millisecond, by the three keys.
    pub(super) new_per_ms: [f64; 3],
    pub(super) mean_len_bytes: f64,
    /// Packets per second in the trace's own time.
    pub(super) packets_per_second: f64,
    /// Link speed; bounds the gap between packets from below.
    pub(super) link_bits_per_second: f64,
    /// Fractions of packets below 80 bytes and of 1400 bytes or more.
    pub(super) small: f64,
    pub(super) large: f64,
    /// Fraction of large packets with 1514 bytes; the others have 1400 to 1460.
    pub(super) full: f64,
    /// Fraction of connections with both directions in the trace.
    pub(super) bidirectional: f64,
    /// Fraction of active sources, pairs and flows that are long-lived.
    pub(super) long_lived: f64,
    /// Zipf exponent of the popularity of long-lived flows.
    pub(super) zipf_exponent: f64,
    /// Probability that a large packet is followed by another of its flow.
    pub(super) burst_continuation: f64,
    /// Fraction of UDP connections.
    pub(super) udp: f64,
    /// Fraction of flows from a known source to a new destination that are probes.
    pub(super) probe_fraction: f64,
    /// Fraction of hosts with IPv6 addresses.
    pub(super) ipv6: f64,
    /// Range of round-trip times.
    pub(super) rtt_ns: (u64, u64),
    pub(super) plan: AddressPlan,
}

/// Name, one-line description and a paper's figures of each profile, in the order of the enum.
const PROFILES: [(Profile, &str, &str, Option<&PaperRow>); 11] = [
    (Profile::Uni1, "uni1", "a university's data centre, both directions", Some(&UNI1)),
    (Profile::Uni2, "uni2", "another university's data centre, both directions", Some(&UNI2)),
    (Profile::Mawi15, "mawi15", "a transit link of the WIDE backbone in 2015: few sources, many scans", Some(&MAWI15)),
    (Profile::Chi15, "chi15", "a provider's link in Chicago in 2015, one direction", Some(&CHI15)),
    (Profile::Caida2019, "caida2019", "a provider's link in 2019, one direction, short packets", Some(&CAIDA2019)),
    (Profile::Mawi2021, "mawi2021", "a transit link of the WIDE backbone in 2021", Some(&MAWI2021)),
    (Profile::Uniform, "uniform", "every flow is equally likely", None),
    (Profile::Zipf, "zipf", "the probability of the n-th flow is proportional to 1/n^exponent", None),
    (Profile::Single, "single", "one flow", None),
    (Profile::Alternate, "alternate", "flows in turn, packet by packet", None),
    (Profile::Churn, "churn", "a fixed number of new flows per minute, each replacing the oldest", None),
];

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; PROFILES.len()] = {
        let mut all = [Profile::Uni1; PROFILES.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = PROFILES[i].0;
            i += 1;
        }
        all
    };

    /// Returns the profile of this name.
    pub fn by_name(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name().eq_ignore_ascii_case(name))
    }

    /// Name of the profile.
    pub fn name(self) -> &'static str {
        PROFILES[self as usize].1
    }

    /// One-line description.
    pub fn summary(self) -> &'static str {
        PROFILES[self as usize].2
    }

    /// The figures that a paper prints for it.
    pub fn row(self) -> Option<&'static PaperRow> {
        PROFILES[self as usize].3
    }

    pub(super) fn model(self) -> Option<Model> {
        const MS: u64 = 1_000_000;
        let uni1 = Model {
            active: [575.0, 997.0, 4000.0],
            new_per_ms: [13.0, 19.0, 39.0],
            mean_len_bytes: 697.0,
            packets_per_second: 6_000.0,
            link_bits_per_second: 1e9,
            small: 0.30,
            large: 0.44,
            full: 0.4,
            bidirectional: 0.9,
            long_lived: 0.4,
            zipf_exponent: 1.1,
            burst_continuation: 0.3,
            udp: 0.25,
            probe_fraction: 0.1,
            ipv6: 0.0,
            rtt_ns: (MS / 4, 20 * MS),
            plan: AddressPlan::Campus,
        };
        let chi15 = Model {
            active: [92_000.0, 147_000.0, 178_000.0],
            new_per_ms: [135.0, 144.0, 144.0],
            mean_len_bytes: 778.0,
            packets_per_second: 200_000.0,
            link_bits_per_second: 10e9,
            small: 0.32,
            large: 0.48,
            full: 0.85,
            bidirectional: 0.0,
            long_lived: 0.3,
            zipf_exponent: 1.0,
            burst_continuation: 0.02,
            udp: 0.2,
            probe_fraction: 0.2,
            ipv6: 0.02,
            rtt_ns: (5 * MS, 60 * MS),
            plan: AddressPlan::Backbone,
        };
        let mawi15 = Model {
            active: [12_000.0, 130_000.0, 152_000.0],
            new_per_ms: [38.0, 112.0, 114.0],
            mean_len_bytes: 540.0,
            packets_per_second: 130_000.0,
            link_bits_per_second: 1e9,
            small: 0.45,
            large: 0.31,
            bidirectional: 0.4,
            long_lived: 0.15,
            probe_fraction: 0.9,
            ipv6: 0.05,
            ..chi15.clone()
        };
        Some(match self {
            Profile::Uni1 => uni1,
            Profile::Uni2 => Model {
                active: [948.0, 3000.0, 7000.0],
                new_per_ms: [20.0, 42.0, 42.0],
                mean_len_bytes: 751.0,
                packets_per_second: 12_000.0,
                small: 0.48,
                large: 0.47,
                full: 0.9,
                long_lived: 0.35,
                probe_fraction: 0.5,
                ..uni1
            },
            Profile::Mawi15 => mawi15,
            Profile::Chi15 => chi15,
            // The paper prints 5-tuples only; sources and pairs are in the same proportion as on the similar link of
            // 2015.
            Profile::Caida2019 => Model {
                active: [95_300.0, 152_200.0, 184_305.0],
                mean_len_bytes: 411.0,
                packets_per_second: 250_000.0,
                small: 0.52,
                large: 0.21,
                ipv6: 0.04,
                ..chi15
            },
            Profile::Mawi2021 => Model {
                active: [12_920.0, 140_000.0, 163_697.0],
                mean_len_bytes: 573.0,
                packets_per_second: 120_000.0,
                small: 0.42,
                large: 0.32,
                ipv6: 0.1,
                ..mawi15
            },
            _ => return None,
        })
    }
}

/// The text gives classes of 30, 20 and 50%, which exceed the printed mean even if every packet of the last class has
/// 1400 bytes. The mean takes precedence.
const UNI1: PaperRow = PaperRow {
    source: "FlowBlaze table 6",
    mean_len_bytes: 697.0,
    active_in_10s: [Some(575), Some(997), Some(4_000)],
    new_per_ms: [Some(13), Some(19), Some(39)],
    sizes: &[share(0, Some(80), 0.3), share(80, Some(300), 0.2), share(1400, None, 0.5)],
};

const UNI2: PaperRow = PaperRow {
    source: "FlowBlaze table 6",
    mean_len_bytes: 751.0,
    active_in_10s: [Some(948), Some(3_000), Some(7_000)],
    new_per_ms: [Some(20), Some(42), Some(42)],
    sizes: &[share(0, Some(100), 0.5), share(1400, None, 0.5)],
};

const MAWI15: PaperRow = PaperRow {
    source: "FlowBlaze table 6",
    mean_len_bytes: 540.0,
    active_in_10s: [Some(12_000), Some(130_000), Some(152_000)],
    new_per_ms: [Some(38), Some(112), Some(114)],
    sizes: &[share(0, Some(80), 0.45)],
};

const CHI15: PaperRow = PaperRow {
    source: "FlowBlaze table 6",
    mean_len_bytes: 778.0,
    active_in_10s: [Some(92_000), Some(147_000), Some(178_000)],
    new_per_ms: [Some(135), Some(144), Some(144)],
    sizes: &[share(0, Some(80), 0.3), share(1400, None, 0.5)],
};

const CAIDA2019: PaperRow = PaperRow {
    source: "eHDL 5.3",
    mean_len_bytes: 411.0,
    active_in_10s: [None, None, Some(184_305)],
    new_per_ms: [None; 3],
    sizes: &[],
};

const MAWI2021: PaperRow = PaperRow {
    source: "eHDL 5.3",
    mean_len_bytes: 573.0,
    active_in_10s: [None, None, Some(163_697)],
    new_per_ms: [None; 3],
    sizes: &[],
};
