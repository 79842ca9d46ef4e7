// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dissection of packets by `tshark`, and its comparison before and after the rewriting function.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use flowloom_trace::CapturedPacket;

use super::{REWRITE, name, ok, read, tool, write};

/// Protocols that `tshark` dissects. It would guess others from port numbers, which the function rewrites.
const DISSECTED: [&str; 16] = [
    "frame",
    "eth",
    "ethertype",
    "vlan",
    "ieee8021ad",
    "ip",
    "ipv6",
    "ipv6.hopopts",
    "ipv6.dstopts",
    "ipv6.routing",
    "ipv6.fraghdr",
    "ah",
    "tcp",
    "udp",
    "icmp",
    "icmpv6",
];
const SETTINGS: [&str; 6] = [
    "ip.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "ip.defragment:FALSE",
    "ipv6.defragment:FALSE",
    "tcp.desegment_tcp_streams:FALSE",
];
pub const CHECKSUMS: [&str; 5] =
    ["ip.checksum.status", TCP_STATUS, "udp.checksum.status", "icmp.checksum.status", "icmpv6.checksum.status"];

/// Checksum statuses of `tshark`: bad and illegal (a UDP checksum of 0 over IPv6), good, not present.
pub const BAD: [&str; 2] = ["0", "4"];
pub const GOOD: &str = "1";
pub const NOT_PRESENT: &str = "3";

const TCP_STATUS: &str = "tcp.checksum.status";
const TCP_SUMS: [&str; 2] = ["tcp.checksum", "tcp.checksum_calculated"];

/// The named fields of each packet, in order.
///
/// `tshark` reports a TCP checksum of 0xffff as bad where it would write 0. Both are zero in ones' complement, and
/// Linux writes 0xffff, in one packet of 65,536, so such a checksum is treated as good.
pub fn fields(test: &str, capture: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let Some(status) = fields.iter().position(|field| *field == TCP_STATUS) else {
        return fields_as_they_are(test, capture, fields);
    };
    let mut rows = fields_as_they_are(test, capture, &[fields, &TCP_SUMS].concat())?;
    for row in &mut rows {
        let sums = row.split_off(fields.len());
        if sums == ["0xffff", "0x0000"] && row[status] == BAD[0] {
            row[status] = GOOD.to_owned();
        }
    }
    Some(rows)
}

fn fields_as_they_are(test: &str, capture: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut arguments = vec!["-n", "--disable-protocol", "ALL"];
    arguments.extend(DISSECTED.iter().flat_map(|protocol| ["--enable-protocol", protocol]));
    arguments.extend(SETTINGS.iter().flat_map(|setting| ["-o", setting]));
    arguments.extend(["-T", "fields"]);
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    arguments.extend(["-r", name(capture)]);
    let text = tool(test, "tshark", &arguments)?;
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Dissection of a packet: its protocols, and per kind of checksum the status, comma-separated for several headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    protocols: String,
    /// Length fields of authentication headers: 4-byte units after the first 8 bytes.
    ah_units: String,
    /// Segments left of routing headers.
    segments_left: String,
    home_address: String,
    labels: String,
    status: [String; 5],
}

impl Opinion {
    pub fn bad(&self) -> usize {
        self.status.iter().flat_map(|s| s.split(',')).filter(|s| BAD.contains(s)).count()
    }

    /// True if the function need not keep the packet's checksums: headers lie beyond the limits of the parser, or a
    /// checksum covers other addresses than those of the IPv6 header (the last segment of a routing header, or a home
    /// address).
    pub fn is_out_of_reach(&self) -> bool {
        let headers: Vec<&str> = self.protocols.split(':').collect();
        let extensions = headers.iter().filter(|h| h.starts_with("ipv6.") || **h == "ah").count();
        let tags = headers.iter().filter(|h| ["vlan", "ieee8021ad"].contains(h)).count();
        let labels = self.labels.split(',').count();
        // An authentication header has at least 12 bytes; `tshark` also accepts 8.
        let is_ah_short = self.ah_units.split(',').any(|units| units == "0");
        let is_elsewhere =
            self.segments_left.split(',').any(|left| !["", "0"].contains(&left)) || !self.home_address.is_empty();
        extensions > 4
            || tags > 2
            || labels > 4
            || is_ah_short
            || is_elsewhere
            || headers.windows(2).any(|two| two == ["ip", "ah"])
    }
}

/// Opinions by time stamp. Time stamps must be unique.
pub fn opinions(test: &str, capture: &Path) -> Option<HashMap<String, Opinion>> {
    let mut wanted = vec![
        "frame.time_epoch",
        "frame.protocols",
        "ah.length",
        "ipv6.routing.segleft",
        "ipv6.opt.mipv6.home_address",
        "mpls.label",
    ];
    wanted.extend(CHECKSUMS);
    let rows = fields(test, capture, &wanted)?;
    let count = rows.len();
    let opinions: HashMap<String, Opinion> = rows
        .into_iter()
        .map(|row| {
            let status = std::array::from_fn(|i| row[i + 6].clone());
            let [protocols, ah_units, segments_left, home_address, labels] =
                std::array::from_fn(|i| row[i + 1].clone());
            (row[0].clone(), Opinion { protocols, ah_units, segments_left, home_address, labels, status })
        })
        .collect();
    assert_eq!(opinions.len(), count, "time stamps of {} are not unique", capture.display());
    Some(opinions)
}

/// Makes time stamps unique and strictly increasing, by moving packets with equal times by one nanosecond each.
fn with_unique_times(mut packets: Vec<CapturedPacket>) -> Vec<CapturedPacket> {
    let mut least_ns = 0;
    for packet in &mut packets {
        packet.time_ns = packet.time_ns.max(least_ns);
        least_ns = packet.time_ns + 1;
    }
    packets
}

/// Result of the rewriting function on a list of packets.
#[derive(Debug, Default)]
pub struct Judged {
    pub packets: usize,
    /// Number of packets that were not judged: see [`Opinion::is_out_of_reach`].
    pub out_of_reach: usize,
    pub outputs: usize,
    pub rewritten: usize,
    /// Number of rewritten packets by kind of checksum and its status.
    pub status: BTreeMap<(&'static str, String), usize>,
}

impl Judged {
    /// Number of rewritten packets in which a checksum of this kind has this status.
    pub fn count(&self, what: &str, status: &str) -> usize {
        self.status.iter().filter(|((w, s), _)| *w == what && s == status).map(|(_, n)| n).sum()
    }
}

/// Runs the rewriting function on packets and compares the checksum statuses before and after. If `exactly` is set,
/// each status must stay the same; otherwise no checksum may become bad.
pub fn judge_rewriting(
    test: &str,
    what: &str,
    packets: Vec<CapturedPacket>,
    engines: &[&str],
    exactly: bool,
) -> Option<Vec<Judged>> {
    let folder = tempfile::tempdir().unwrap();
    let (given, left) = (folder.path().join("given.pcapng"), folder.path().join("left.pcapng"));
    let packets = with_unique_times(packets);
    write(&given, &packets);
    let before = opinions(test, &given)?;
    let within_reach: Vec<CapturedPacket> =
        packets.into_iter().filter(|p| !before[&epoch(p.time_ns)].is_out_of_reach()).collect();
    // Excluded packets must be rare, or the test would check nothing.
    assert!(within_reach.len() * 20 >= before.len() * 19, "{} of {} packets", within_reach.len(), before.len());
    write(&given, &within_reach);
    let originals: HashMap<u64, &[u8]> = within_reach.iter().map(|p| (p.time_ns, p.bytes.as_slice())).collect();
    let judge = |engine: &&str| {
        ok(&["run", REWRITE, "--engine", engine, "-r", name(&given), "-w", name(&left)]);
        let after = opinions(test, &left)?;
        let packets = before.len();
        let mut judged = Judged { packets, out_of_reach: packets - within_reach.len(), ..Judged::default() };
        let mut last_ns = 0;
        for sent in read(&left) {
            let at = epoch(sent.time_ns);
            let (old, new) = (&before[&at], &after[&at]);
            assert!(last_ns < sent.time_ns, "outputs are out of order at {at}");
            last_ns = sent.time_ns;
            let original = originals[&sent.time_ns];
            let describe = || {
                format!("{what} on {engine}, packet at {at}:\n{old:?}\n{original:02x?}\n{new:?}\n{:02x?}", sent.bytes)
            };
            assert!(new.bad() <= old.bad(), "a checksum became bad: {}", describe());
            if exactly {
                assert_eq!(new.status, old.status, "a checksum changed its status: {}", describe());
            }
            judged.outputs += 1;
            if original != sent.bytes {
                judged.rewritten += 1;
                for (what, status) in CHECKSUMS.into_iter().zip(&new.status).filter(|(_, status)| !status.is_empty()) {
                    *judged.status.entry((what, status.clone())).or_default() += 1;
                }
            }
        }
        Some(judged)
    };
    engines.iter().map(judge).collect()
}

/// Time in `tshark`'s format.
pub fn epoch(time_ns: u64) -> String {
    format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}
