// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of generated traffic, and their validation.

use crate::error::TraceError;

use super::frame::{LARGEST_BYTES, Lengths, SMALLEST_BYTES};
use super::host::AddressPlan;
use super::network::Scale;
use super::pattern::{Choice, Shape};
use super::profile::{Model, Profile};
use super::rate::Rate;
use super::zipf::Zipf;

/// Default duration of a profile's trace in its own time: the papers' window.
const OWN_DURATION_NS: u64 = 10_000_000_000;
/// Default number of packets of a pattern.
const PATTERN_PACKETS: u64 = 1_000_000;
const PATTERN_RATE: Rate = Rate::Bits(10_000_000_000);
const PATTERN_BYTES: u32 = SMALLEST_BYTES;
/// The packets of a minute must suffice for its new flows; each TCP flow also needs a FIN.
const SECONDS_PER_MINUTE: f64 = 60.0;
/// Maximum number of concurrent flows of a pattern: more than any table here holds, and bounded in memory.
const MAX_PATTERN_FLOWS: u64 = 100_000_000;
/// Minimum number of flows for a network of several hosts.
const MIN_NETWORK_FLOWS: u64 = 100;
const MAX_NEW_PER_MINUTE: u64 = 10_000_000_000;
const MAX_EXPONENT: f64 = 5.0;
const MIN_SNAP_BYTES: u32 = 14;
const MAX_SNAP_BYTES: u32 = 262_144;

/// The transport protocol of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP: the first packet of a flow is a SYN, the last one of an ended flow a FIN.
    Tcp,
}

/// Options of generated traffic. `None` selects the profile's value.
#[derive(Debug, Clone, PartialEq)]
pub struct TrafficOptions {
    /// The traffic profile.
    pub profile: Profile,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of packets. Traffic ends at this number or at `duration_ns`, whichever comes first.
    pub packets: Option<u64>,
    /// Duration of the capture.
    pub duration_ns: Option<u64>,
    /// Rate of a pattern; for a network profile, the rate at which its packets are replayed without gaps.
    pub rate: Option<Rate>,
    /// Snap length: the maximum number of captured bytes per packet.
    pub snap_bytes: Option<u32>,
    /// Flows active in 10 s for a network; concurrent flows for a pattern.
    pub flows: Option<u64>,
    /// Fixed length of every packet.
    pub size_bytes: Option<u32>,
    /// Zipf exponent of flow popularity: `zipf`, `churn`.
    pub exponent: Option<f64>,
    /// New flows per minute: `churn`.
    pub new_per_minute: Option<u64>,
    /// Fraction of IPv6 hosts (for a pattern: flows), from 0 to 1.
    pub ipv6: Option<f64>,
    /// Transport protocol of a pattern.
    pub protocol: Option<Protocol>,
}

/// Generator of the packets.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Network { model: Model, scale: Scale },
    Pattern(Shape),
}

/// Validated options.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) source: Source,
    pub(super) lengths: Lengths,
    pub(super) addresses: AddressPlan,
    pub(super) packets: u64,
    pub(super) until_ns: u64,
    pub(super) until_own_ns: u64,
}

impl TrafficOptions {
    /// Returns the profile's defaults with seed 1.
    pub fn new(profile: Profile) -> TrafficOptions {
        TrafficOptions {
            profile,
            seed: 1,
            packets: None,
            duration_ns: None,
            rate: None,
            snap_bytes: None,
            flows: None,
            size_bytes: None,
            exponent: None,
            new_per_minute: None,
            ipv6: None,
            protocol: None,
        }
    }

    /// Approximate number of packets.
    ///
    /// # Errors
    /// Those of [`super::Traffic::new`].
    pub fn expected_packets(&self) -> Result<u64, TraceError> {
        let plan = self.plan()?;
        let (own_rate, rate) = match &plan.source {
            Source::Network { model, .. } => {
                let mean = self.size_bytes.map_or(model.mean_len_bytes, f64::from);
                let own = model.packets_per_second;
                (own, self.rate.map_or(own, |rate| rate.packets_per_second(mean)))
            }
            Source::Pattern(shape) => {
                let rate = shape.rate.packets_per_second(f64::from(self.pattern_size_bytes()));
                (rate, rate)
            }
        };
        let within = |ns: u64, rate: f64| (ns as f64 / 1e9 * rate) as u64;
        Ok(plan.packets.min(within(plan.until_ns, rate)).min(within(plan.until_own_ns, own_rate)))
    }

    pub(super) fn plan(&self) -> Result<Plan, TraceError> {
        self.check_common()?;
        let lengths = Lengths { fixed_bytes: self.size_bytes };
        let is_endless = self.packets.is_none() && self.duration_ns.is_none();
        let packets = self.packets.unwrap_or(u64::MAX);
        let until_ns = self.duration_ns.unwrap_or(u64::MAX);
        let own_ns = if is_endless { OWN_DURATION_NS } else { u64::MAX };
        let Some(mut model) = self.profile.model() else {
            let shape = self.shape()?;
            let packets = if is_endless { PATTERN_PACKETS } else { packets };
            let lengths = shape.lengths;
            let addresses = AddressPlan::Laboratory;
            let source = Source::Pattern(shape);
            return Ok(Plan { source, lengths, addresses, packets, until_ns, until_own_ns: u64::MAX });
        };
        model.ipv6 = self.ipv6.unwrap_or(model.ipv6);
        let addresses = model.plan;
        let source = Source::Network { scale: self.scale(&model)?, model };
        Ok(Plan { source, lengths, addresses, packets, until_ns, until_own_ns: own_ns })
    }

    fn check_common(&self) -> Result<(), TraceError> {
        let is_network = self.profile.model().is_some();
        let profiles = |is_accepted: fn(Profile) -> bool| Profile::ALL.into_iter().filter(move |p| is_accepted(*p));
        self.check_accepted(
            "exponent",
            self.exponent.is_some(),
            profiles(|p| [Profile::Zipf, Profile::Churn].contains(&p)),
        )?;
        self.check_accepted("new flows per minute", self.new_per_minute.is_some(), profiles(|p| p == Profile::Churn))?;
        self.check_accepted("protocol", self.protocol.is_some(), profiles(|p| p.model().is_none()))?;
        self.check_accepted("flows", self.flows.is_some(), profiles(|p| p != Profile::Single))?;

        let ends = [("packets", self.packets), ("duration in nanoseconds", self.duration_ns)];
        for (option, value) in ends {
            self.check_range(option, value, 1, u64::MAX, "at least 1")?;
        }
        let snap = format!("{MIN_SNAP_BYTES} to {MAX_SNAP_BYTES} bytes");
        let (least, most) = (u64::from(MIN_SNAP_BYTES), u64::from(MAX_SNAP_BYTES));
        self.check_range("snap length", self.snap_bytes.map(u64::from), least, most, &snap)?;
        if let Some(ipv6) = self.ipv6.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(self.out_of_range("share of IPv6", format!("{}%", ipv6 * 100.0), "0 to 100%".to_owned()));
        }

        let own_ipv6 = self.profile.model().map_or(0.0, |model| model.ipv6);
        let has_ipv6 = self.ipv6.unwrap_or(own_ipv6) > 0.0;
        let has_tcp = is_network || self.protocol == Some(Protocol::Tcp);
        let (least, most) = (Lengths::smallest_bytes(has_ipv6, has_tcp), LARGEST_BYTES);
        let mut size = format!("{least} to {most} bytes");
        if least > SMALLEST_BYTES {
            size.push_str(&format!(", or {SMALLEST_BYTES} with a share of IPv6 of 0"));
        }
        let size_bytes = if is_network { self.size_bytes } else { Some(self.pattern_size_bytes()) };
        self.check_range("size", size_bytes.map(u64::from), u64::from(least), u64::from(most), &size)
    }

    fn scale(&self, model: &Model) -> Result<Scale, TraceError> {
        let most = Scale::max_flows(model);
        let expected = format!(
            "{MIN_NETWORK_FLOWS} to {most} flows in 10 s at its {} packets per second",
            model.packets_per_second
        );
        self.check_range("flows", self.flows, MIN_NETWORK_FLOWS, most, &expected)?;
        Ok(Scale::new(model, self.flows.map_or(model.active[2], |flows| flows as f64)))
    }

    fn pattern_size_bytes(&self) -> u32 {
        self.size_bytes.unwrap_or(if self.profile == Profile::Churn { 1024 } else { PATTERN_BYTES })
    }

    fn shape(&self) -> Result<Shape, TraceError> {
        let is_churn = self.profile == Profile::Churn;
        let (own_flows, least) = match self.profile {
            Profile::Single => (1, 1),
            Profile::Alternate => (2, 2),
            Profile::Zipf => (50_000, 1),
            Profile::Churn => (100_000, 1),
            _ => (1000, 1),
        };
        let expected = format!("{least} to {MAX_PATTERN_FLOWS} flows");
        self.check_range("flows", self.flows, least, MAX_PATTERN_FLOWS, &expected)?;
        let flows = self.flows.unwrap_or(own_flows);
        if let Some(exponent) = self.exponent.filter(|exponent| !(0.0..=MAX_EXPONENT).contains(exponent)) {
            return Err(self.out_of_range("exponent", exponent.to_string(), format!("0 to {MAX_EXPONENT}")));
        }
        let exponent = self.exponent.unwrap_or(if self.profile == Profile::Zipf { 1.0 } else { 0.0 });
        let choice = match self.profile {
            Profile::Alternate => Choice::RoundRobin,
            _ if exponent > 0.0 => Choice::Zipf(Zipf::new(flows, exponent)),
            _ => Choice::Uniform,
        };
        let is_tcp = self.protocol == Some(Protocol::Tcp);
        let rate = self.rate.unwrap_or(PATTERN_RATE);
        let size_bytes = self.pattern_size_bytes();
        let new_per_minute = if is_churn { self.new_per_minute.unwrap_or(100_000) } else { 0 };
        let packets = rate.packets_per_second(f64::from(size_bytes)) * SECONDS_PER_MINUTE;
        let most = (packets / if is_tcp { 2.0 } else { 1.0 }) as u64;
        let expected = format!(
            "at most {most}: at {rate} there are {packets:.0} packets of {size_bytes} bytes per minute{}",
            if is_tcp { ", at least two for each flow" } else { ", at least one for each flow" }
        );
        self.check_range("new flows per minute", Some(new_per_minute), 0, most.min(MAX_NEW_PER_MINUTE), &expected)?;
        let lengths = Lengths { fixed_bytes: Some(size_bytes) };
        Ok(Shape { choice, flows, new_per_minute, rate, is_tcp, ipv6: self.ipv6.unwrap_or(0.0), lengths })
    }

    /// Rejects an option that the profile does not take.
    fn check_accepted(
        &self,
        option: &'static str,
        is_given: bool,
        takers: impl Iterator<Item = Profile>,
    ) -> Result<(), TraceError> {
        let takers: Vec<&str> = takers.map(Profile::name).collect();
        if !is_given || takers.contains(&self.profile.name()) {
            return Ok(());
        }
        let takers = takers.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        Err(TraceError::TrafficOptionUnused { profile: self.profile.name(), option, takers })
    }

    fn check_range(
        &self,
        option: &'static str,
        value: Option<u64>,
        least: u64,
        most: u64,
        expected: &str,
    ) -> Result<(), TraceError> {
        match value {
            Some(value) if !(least..=most).contains(&value) => {
                Err(self.out_of_range(option, value.to_string(), expected.to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn out_of_range(&self, option: &'static str, found: String, expected: String) -> TraceError {
        TraceError::TrafficOption { profile: self.profile.name(), option, found, expected }
    }
}
