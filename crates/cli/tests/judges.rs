// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of `flowloom run`, checked by `tshark`: checksums, lengths, time stamps, conversations.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::common::tshark::{BAD, CHECKSUMS, GOOD, NOT_PRESENT, epoch, fields, judge_rewriting, opinions};
use crate::common::{
    EVERYWHERE, PASS_ALL, REWRITE, UDP_FLOWS, captures, engines, generated, json, kernel, name, ok, packet, put, read,
    stem, tool, write,
};
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_trace::CapturedPacket;

/// Time of the first packet in nanoseconds: whole microseconds, which every format can represent.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

/// Packets of every kind between this number of hosts, one in eight with wrong checksums. The parser handles at most 2
/// tags and 4 extension headers; `Opinion::is_out_of_reach` excludes packets with more.
fn random_packets(rng: &mut Rng, count: usize, hosts: usize) -> Vec<CapturedPacket> {
    let mut time_ns = BEGIN_NS;
    let mut next = || {
        time_ns += 1000 * (1 + rng.below(2000) as u64);
        let mut builder = PacketBuilder::random(rng, hosts);
        if rng.chance(1, 8) {
            builder = builder.wrong_checksums(rng.below(3) as u16 * 77, rng.below(3) as u16 * 99);
        }
        packet(time_ns, builder.build())
    };
    (0..count).map(|_| next()).collect()
}

/// Traffic generated for the rewriting function, followed by packets of every kind.
fn rewriting_traffic() -> Vec<CapturedPacket> {
    let folder = tempfile::tempdir().unwrap();
    let mut packets = read(&generated(folder.path(), REWRITE, 6000, 3));
    let end_ns = packets.iter().map(|p| p.time_ns).max().unwrap();
    for mut packet in random_packets(&mut Rng::from_env(0x7e), 6000, 60) {
        packet.time_ns = packet.time_ns - BEGIN_NS + end_ns;
        packets.push(packet);
    }
    packets
}

#[test]
fn rewriting_keeps_checksums() {
    let test = "rewriting_keeps_checksums";
    let engines = engines(test);
    let Some(judged) = judge_rewriting(test, "made traffic", rewriting_traffic(), &engines, true) else { return };
    for (engine, judged) in engines.iter().zip(judged) {
        eprintln!("{engine}: {judged:?}");
        // For every kind of checksum, packets with a good, a bad and an absent checksum were rewritten.
        for what in CHECKSUMS {
            assert!(judged.count(what, GOOD) >= 50, "{what}: too few good ones were rewritten");
        }
        for what in ["tcp.checksum.status", "ip.checksum.status"] {
            assert!(judged.count(what, BAD[0]) >= 50, "{what}: too few bad ones were rewritten");
        }
        assert!(judged.count("udp.checksum.status", NOT_PRESENT) >= 50, "too few without checksum were rewritten");
    }
}

/// Linux writes a TCP checksum of 0 as 0xffff, which is equal in ones' complement. If another checksum is due, 0xffff
/// is wrong.
#[test]
fn a_tcp_checksum_of_zero_is_good_in_both_spellings() {
    const PAYLOAD_AT: usize = 14 + 20 + 20;
    const SUM_AT: usize = 14 + 20 + 16;
    let built = |word: u16| {
        let builder = PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1000, 80);
        builder.payload(&word.to_be_bytes()).build()
    };
    // With the checksum of the empty payload as payload, the checksum is 0.
    let mut zero = built(0);
    let rest = [zero[SUM_AT], zero[SUM_AT + 1]];
    zero = built(u16::from_be_bytes(rest));
    assert_eq!((&zero[SUM_AT..SUM_AT + 2], &zero[PAYLOAD_AT..]), (&[0, 0][..], &rest[..]));
    let mut packets = [zero.clone(), zero, built(0x1234), built(0x1234)];
    for packet in [1, 3] {
        packets[packet][SUM_AT..SUM_AT + 2].fill(0xff);
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zero.pcapng");
    write(&path, &packets.map(|bytes| packet(BEGIN_NS, bytes)));
    let test = "a_tcp_checksum_of_zero_is_good_in_both_spellings";
    let Some(rows) = fields(test, &path, &["tcp.checksum.status"]) else { return };
    assert_eq!(rows, [[GOOD], [GOOD], [GOOD], [BAD[0]]]);
}

/// The long test `evidence_checksums` covers the captures in full.
#[test]
fn rewriting_captures_makes_no_checksum_bad() {
    let test = "rewriting_captures_makes_no_checksum_bad";
    for capture in captures(test) {
        let mut packets = read(&capture);
        packets.truncate(2500);
        let what = capture.display().to_string();
        let Some(judged) = judge_rewriting(test, &what, packets, &["interp"], false) else { return };
        assert!(judged[0].rewritten > 0, "{what}: {judged:?}");
    }
}

/// Byte order and time unit of a hand-written capture.
#[derive(Clone, Copy)]
struct Written {
    is_big: bool,
    unit_ns: u64,
}

impl Written {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| if self.is_big { w.to_be_bytes() } else { w.to_le_bytes() }).collect()
    }

    fn pcap(self, packets: &[CapturedPacket]) -> Vec<u8> {
        let magic = if self.unit_ns == 1 { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let mut file = self.words(&[magic]);
        file.extend([self.u16(2), self.u16(4)].concat());
        file.extend(self.words(&[0, 0, 65535, 1]));
        for p in packets {
            let (seconds, rest) =
                ((p.time_ns / 1_000_000_000) as u32, (p.time_ns % 1_000_000_000 / self.unit_ns) as u32);
            file.extend(self.words(&[seconds, rest, p.bytes.len() as u32, p.original_len_bytes]));
            file.extend(&p.bytes);
        }
        file
    }

    /// Encodes packets as a pcapng file with one interface.
    fn pcapng(self, packets: &[CapturedPacket]) -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let mut body = body.to_vec();
            body.resize(body.len().next_multiple_of(4), 0);
            let len = body.len() as u32 + 12;
            [self.words(&[kind, len]), body, self.words(&[len])].concat()
        };
        let version = [self.u16(1), self.u16(0)].concat();
        let mut file = block(0x0a0d_0d0a, &[self.words(&[0x1a2b_3c4d]), version, vec![0xff; 8]].concat());
        let link = [self.u16(1), self.u16(0)].concat();
        let digits = if self.unit_ns == 1 { 9 } else { 6 };
        let resolution = [&self.u16(9)[..], &self.u16(1), &[digits, 0, 0, 0, 0, 0, 0, 0]].concat();
        file.extend(block(1, &[link, self.words(&[65535]), resolution].concat()));
        for p in packets {
            let units = p.time_ns / self.unit_ns;
            let len = p.bytes.len() as u32;
            let head = self.words(&[0, (units >> 32) as u32, units as u32, len, p.original_len_bytes]);
            file.extend(block(6, &[head, p.bytes.clone()].concat()));
        }
        file
    }
}

/// Packets of all sizes: one in four is cut short, some have equal times, and one goes back in time.
fn frames(rng: &mut Rng) -> Vec<CapturedPacket> {
    let mut packets = random_packets(rng, 1500, 60);
    for (i, p) in packets.iter_mut().enumerate() {
        if i % 50 == 0 {
            p.bytes = rng.bytes([0, 1, 13, 14, 15, 1514, 9000, 65535][i / 50 % 8]);
            p.original_len_bytes = p.bytes.len() as u32;
        }
        if i % 4 == 1 {
            let rest = rng.below(p.bytes.len() + 1);
            p.bytes.truncate(rest);
        }
        if i % 100 == 7 {
            p.time_ns -= 3_000_000;
        }
    }
    for i in (3..packets.len()).step_by(60) {
        packets[i].time_ns = packets[i - 1].time_ns;
    }
    packets
}

/// Time, length on the wire, and bytes.
fn frame(packet: &CapturedPacket) -> (u64, u32, &[u8]) {
    (packet.time_ns, packet.original_len_bytes, &packet.bytes)
}

fn assert_same_frames(what: &str, given: &[CapturedPacket], left: &[CapturedPacket]) {
    assert_eq!(given.len(), left.len(), "{what}: packets");
    for (i, (given, left)) in given.iter().zip(left).enumerate() {
        assert_eq!(frame(given), frame(left), "{what}: packet {i}");
    }
}

#[test]
fn what_passes_is_what_came_in_any_format() {
    let folder = tempfile::tempdir().unwrap();
    let packets = frames(&mut Rng::from_env(0xa11));
    let mut files = 0;
    for is_big in [false, true] {
        for unit_ns in [1, 1000] {
            let written = Written { is_big, unit_ns };
            for (format, bytes) in [("pcap", written.pcap(&packets)), ("pcapng", written.pcapng(&packets))] {
                let given = put(&folder, format!("given-{is_big}-{unit_ns}.{format}"), bytes);
                for (engine, left) in EVERYWHERE.into_iter().zip(["left.pcap", "left.pcapng.xz"]) {
                    let left = folder.path().join(left);
                    ok(&["run", PASS_ALL, "--engine", engine, "-r", name(&given), "-w", name(&left)]);
                    let what = format!("{} on {engine} to {}", given.display(), left.display());
                    assert_same_frames(&what, &packets, &read(&left));
                    files += 1;
                }
            }
        }
    }
    assert_eq!(files, 16);
}

#[test]
fn what_passes_the_kernel_is_what_came() {
    let test = "what_passes_the_kernel_is_what_came";
    if !kernel(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (given, left) = (folder.path().join("given.pcap"), folder.path().join("left.pcap"));
    let packets = frames(&mut Rng::from_env(0xa12));
    write(&given, &packets);
    let report = json(&["run", PASS_ALL, "--engine", "kernel", "-r", name(&given), "-w", name(&left), "--json"]);
    let (taken, refused): (Vec<CapturedPacket>, Vec<CapturedPacket>) =
        packets.into_iter().partition(|p| (14..=3520).contains(&p.bytes.len()));
    let counted: u64 = report["refused"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(counted, refused.len() as u64, "{report}");
    assert!(refused.len() >= 10, "too few frames that the kernel cannot take");
    assert_same_frames("in the kernel", &taken, &read(&left));
}

/// Time and both lengths of the frames, as read by `tshark`.
fn frames_by_tshark(test: &str, capture: &Path) -> Option<Vec<Vec<String>>> {
    fields(test, capture, &["frame.time_epoch", "frame.len", "frame.cap_len"])
}

#[test]
fn tshark_sees_the_frames_that_passed_as_they_came() {
    let test = "tshark_sees_the_frames_that_passed_as_they_came";
    let folder = tempfile::tempdir().unwrap();
    let packets = frames(&mut Rng::from_env(0xa13));
    let written: Vec<Vec<String>> = packets
        .iter()
        .map(|p| vec![epoch(p.time_ns), p.original_len_bytes.to_string(), p.bytes.len().to_string()])
        .collect();
    let given = put(&folder, "given.pcap", Written { is_big: true, unit_ns: 1 }.pcap(&packets));
    for left in ["left.pcap", "left.pcapng"] {
        let left = folder.path().join(left);
        ok(&["run", PASS_ALL, "-r", name(&given), "-w", name(&left)]);
        let Some(seen) = frames_by_tshark(test, &left) else { return };
        assert!(seen == written, "{}: tshark sees other frames", left.display());
    }
}

#[test]
fn captures_pass_as_they_came() {
    let test = "captures_pass_as_they_came";
    let folder = tempfile::tempdir().unwrap();
    for capture in captures(test) {
        let left = folder.path().join("left.pcapng");
        ok(&["run", PASS_ALL, "-r", name(&capture), "-w", name(&left)]);
        assert_same_frames(name(&capture), &read(&capture), &read(&left));
        if ["malformed", "frag"].contains(&stem(&capture).as_str()) && capture.extension().is_some_and(|e| e == "xz") {
            // The capture, decompressed by another program.
            let Some(_) = tool(test, "xz", &["--version"]) else { return };
            let unpacked = std::process::Command::new("xz").arg("-dc").arg(&capture).output().unwrap();
            let given = put(&folder, "given.pcap", unpacked.stdout);
            let Some(before) = frames_by_tshark(test, &given) else { return };
            let after = frames_by_tshark(test, &left);
            assert!(Some(before) == after, "{}: tshark sees other frames", capture.display());
        }
    }
}

/// Number of distinct UDP conversations that `tshark` finds: lines of its table.
fn conversations(test: &str, capture: &Path) -> Option<usize> {
    // The function reads outer addresses only, so conversations inside tunnels are disabled.
    let arguments = "-n --disable-protocol gtp -o ip.defragment:FALSE -o ipv6.defragment:FALSE -q -z conv,udp -r";
    let arguments: Vec<&str> = arguments.split(' ').chain([name(capture)]).collect();
    let table = tool(test, "tshark", &arguments)?;
    let ends: HashSet<Vec<&str>> = table
        .lines()
        .filter(|line| line.contains("<->"))
        .map(|line| line.split_whitespace().filter(|word| *word != "<->").take(2).collect())
        .collect();
    Some(ends.len())
}

/// Number of UDP conversations that the function looked up.
fn flows_looked_up(capture: &Path, engine: &str) -> u64 {
    let report = json(&["run", UDP_FLOWS, "--engine", engine, "-r", name(capture), "--json"]);
    report["elements"][0]["flows_looked_up"].as_u64().unwrap_or_else(|| panic!("{report}"))
}

/// Packets of UDP conversations between few hosts, so that many conversations have both directions, mixed with other
/// traffic.
fn conversation_traffic(folder: &Path) -> PathBuf {
    let mut rng = Rng::from_env(0xc0);
    let mut packets = random_packets(&mut rng, 4000, 5);
    packets.retain(|p| p.bytes.len() >= 14);
    let path = folder.join("conversations.pcap");
    write(&path, &packets);
    path
}

#[test]
fn udp_flows_are_tsharks_conversations() {
    let test = "udp_flows_are_tsharks_conversations";
    let folder = tempfile::tempdir().unwrap();
    let capture = conversation_traffic(folder.path());
    // The function does not see conversations beyond the limits of the parser.
    let Some(before) = opinions(test, &capture) else { return };
    let packets: Vec<_> = read(&capture).into_iter().filter(|p| !before[&epoch(p.time_ns)].is_out_of_reach()).collect();
    write(&capture, &packets);
    let Some(expected) = conversations(test, &capture) else { return };
    assert!(expected > 200, "too few conversations: {expected}");
    for engine in engines(test) {
        assert_eq!(flows_looked_up(&capture, engine), expected as u64, "{engine}");
    }
}

/// Captures and their number of UDP conversations, as once computed by `tshark`.
const KNOWN_CONVERSATIONS: [(&str, u64); 2] = [("small-hdronly", 2460), ("real-mix-debian-hdronly", 2145)];

#[test]
fn udp_flows_of_captures_are_those_known() {
    let test = "udp_flows_of_captures_are_those_known";
    let captures = captures(test);
    for (stem_of, expected) in KNOWN_CONVERSATIONS {
        let Some(capture) = captures.iter().find(|capture| stem(capture) == stem_of) else { continue };
        for engine in engines(test) {
            assert_eq!(flows_looked_up(capture, engine), expected, "{stem_of} on {engine}");
        }
    }
}
