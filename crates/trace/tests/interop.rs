// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cross-checks with independent implementations, in both directions: `tshark`, `capinfos` and `xz` if installed, and
//! the crate `pcap-parser`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::common;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;

use common::{
    Order, block, enhanced, interface, obsolete, option, pcap, read_all, read_file, section, simple, verdict, write,
};
use flowloom_testkit::{PacketBuilder, Rng, skip};
use flowloom_trace::{
    CaptureWriter, CapturedPacket, MergedReader, Profile, TraceInfo, Traffic, TrafficOptions, traces_from_env,
};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapBlockOwned, PcapError};

/// The output of a tool, or `None` with a skip message if it is not installed.
fn run(test: &str, tool: &str, arguments: &[&str], path: &Path) -> Option<String> {
    if Command::new(tool).arg("--version").output().is_err() {
        skip(test, &format!("`{tool}` is not installed"));
        return None;
    }
    let output = Command::new(tool).args(arguments).arg(path).env("TZ", "UTC").output().unwrap();
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn random_packets(rng: &mut Rng, count: usize) -> Vec<CapturedPacket> {
    let mut time_ns = 1_700_000_000_000_000_000;
    (0..count)
        .map(|_| {
            time_ns += rng.next_u64() % 5_000_000;
            let bytes = PacketBuilder::random(rng, 8).build();
            let original_len_bytes = bytes.len() as u32 + if rng.chance(1, 4) { 100 } else { 0 };
            let verdict = rng.chance(3, 4).then(|| rng.below(5) as u32);
            CapturedPacket { time_ns, original_len_bytes, port: 1 + rng.below(4) as u32, verdict, bytes, interface: 0 }
        })
        .collect()
}

/// The lines of tshark, which has a column for each of these fields; its first value of each packet.
fn tshark(test: &str, options: &[&str], fields: &[&str], path: &Path) -> Option<Vec<String>> {
    let mut arguments = [&["-n", "-T", "fields", "-E", "occurrence=f"], options].concat();
    arguments.extend(fields.iter().flat_map(|field| ["-e", *field]));
    arguments.push("-r");
    Some(run(test, "tshark", &arguments, path)?.lines().map(str::to_owned).collect())
}

/// Time, both lengths, interface name and verdict of each packet, as tshark prints them.
fn tshark_lines(test: &str, path: &Path) -> Option<Vec<String>> {
    let fields = ["frame.time_epoch", "frame.cap_len", "frame.len", "frame.interface_name", "frame.verdict.ebpf_xdp"];
    tshark(test, &[], &fields, path)
}

fn write_traffic(path: &Path, options: &TrafficOptions) {
    let mut writer = match options.snap_bytes {
        Some(snap_bytes) => CaptureWriter::create_with_snap_len(path, snap_bytes).unwrap(),
        None => CaptureWriter::create(path).unwrap(),
    };
    let mut traffic = Traffic::new(options).unwrap();
    while let Some(packet) = traffic.next_packet() {
        writer.write(packet.time_ns, packet.port, packet.len_bytes, None, packet.bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn line(packet: &CapturedPacket, name: &str, has_verdict: bool) -> String {
    let (seconds, ns) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
    let verdict = packet.verdict.filter(|_| has_verdict).map_or(String::new(), |verdict| verdict.to_string());
    format!("{seconds}.{ns:09}\t{}\t{}\t{name}\t{verdict}", packet.bytes.len(), packet.original_len_bytes)
}

#[test]
fn tshark_reads_written_captures() {
    let test = "tshark_reads_written_captures";
    let packets = random_packets(&mut Rng::from_env(0x5a), 400);
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pcapng", "a.pcap"] {
        let path = folder.path().join(name);
        write(&path, &packets);
        let Some(lines) = tshark_lines(test, &path) else { return };
        let is_pcapng = name == "a.pcapng";
        let port = |packet: &CapturedPacket| if is_pcapng { format!("port {}", packet.port) } else { String::new() };
        let expected: Vec<_> = packets.iter().map(|packet| line(packet, &port(packet), is_pcapng)).collect();
        assert_eq!(lines, expected, "{name}");
    }
}

#[test]
fn tshark_agrees_on_handmade_captures() {
    let test = "tshark_agrees_on_handmade_captures";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hand");
    let mut packets = random_packets(&mut Rng::from_env(0x5b), 40);
    for packet in &mut packets {
        packet.verdict = None;
    }
    for (order, is_ns) in [(Order::Little, true), (Order::Little, false), (Order::Big, true), (Order::Big, false)] {
        let bytes = pcap(order, is_ns, &packets);
        std::fs::write(&path, &bytes).unwrap();
        let Some(lines) = tshark_lines(test, &path) else { return };
        let digits = if is_ns { 9 } else { 6 };
        let read = read_all("hand", &bytes);
        assert_eq!(lines.len(), read.len());
        for (found, packet) in lines.iter().zip(&read) {
            assert_eq!(&found[..11 + digits], &line(packet, "", false)[..11 + digits], "{order:?} {is_ns}");
            assert_eq!(found.split_once('\t').unwrap().1, line(packet, "", false).split_once('\t').unwrap().1);
        }
    }
    for (first, second) in [(Order::Little, Order::Big), (Order::Big, Order::Little)] {
        let mut bytes = Vec::new();
        for order in [first, second] {
            bytes.extend(section(order));
            // Tick units of 1 ns, 1 ms, 2^-20 s and 1 s, and an offset of minus one year.
            for (id, resolution, offset_s) in
                [(0, 9, 0i64), (1, 3, 0), (2, 0x80 | 20, 0), (3, 0, 0), (4, 6, -31_536_000)]
            {
                let name = option(order, 2, format!("eth{id}").as_bytes());
                let options = [name, option(order, 9, &[resolution]), option(order, 14, &order.u64(offset_s as u64))];
                bytes.extend(interface(order, 1, 0, &options));
            }
            // Interface statistics: tshark would show a block of an unknown type as a packet.
            bytes.extend(block(order, 5, &order.words(&[0, 0, 0])));
            for (id, per_s) in [(0, 1_000_000_000), (1, 1000), (2, 1 << 20), (3, 1), (4, 1_000_000)] {
                let ticks = 1_700_000_000 * per_s + per_s / 7;
                bytes.extend(enhanced(order, id, ticks, 80, &packets[id as usize].bytes[..14], &[verdict(order, 3)]));
                bytes.extend(obsolete(order, id as u16, ticks + 1, 80, &packets[id as usize].bytes[..13]));
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        let Some(lines) = tshark_lines(test, &path) else { return };
        let read = read_all("hand", &bytes);
        assert_eq!(lines.len(), read.len());
        for (found, packet) in lines.iter().zip(&read) {
            let (time, rest) = found.split_once('\t').unwrap();
            let expected = line(packet, &format!("eth{}", packet.interface), true);
            let (expected_time, expected_rest) = expected.split_once('\t').unwrap();
            assert!(expected_time.starts_with(time), "{found} for {expected}");
            assert_eq!(rest, expected_rest);
        }
        // tshark has no time for a simple packet block, but it has the lengths.
        bytes.extend(simple(second, 60, &[0; 60]));
        std::fs::write(&path, &bytes).unwrap();
        let Some(lines) = tshark_lines(test, &path) else { return };
        assert!(lines.last().unwrap().contains("\t60\t60\t"), "{lines:?}");
        assert_eq!(read_all("hand", &bytes).len(), lines.len());
    }
}

#[test]
fn capinfos_agrees_on_counts() {
    let test = "capinfos_agrees_on_counts";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    write(&path, &random_packets(&mut Rng::from_env(0x5c), 500));
    let info = TraceInfo::read(&mut MergedReader::open(&[&path]).unwrap()).unwrap();
    let arguments = ["-T", "-r", "-M", "-c", "-d", "-u", "-o", "-z"];
    let Some(text) = run(test, "capinfos", &arguments, &path) else { return };
    let cells: Vec<_> = text.trim().split('\t').skip(1).collect();
    let (seconds, ns) = (info.duration_ns / 1_000_000_000, info.duration_ns % 1_000_000_000);
    let expected = [
        info.packets.to_string(),
        info.wire_bytes.to_string(),
        format!("{seconds}.{ns:09}"),
        format!("{:.2}", info.mean_len_bytes),
        "True".to_owned(),
    ];
    assert_eq!(cells, expected);
    assert_eq!(info.steps_back_in_time, 0);
    assert_eq!(info.ports.values().sum::<u64>(), info.packets);
    assert_eq!(info.ports.len(), 4);
}

#[test]
fn xz_round_trips_with_the_xz_tool() {
    let test = "xz_round_trips_with_the_xz_tool";
    let packets = random_packets(&mut Rng::from_env(0x5d), 500);
    let folder = tempfile::tempdir().unwrap();
    let (plain, packed) = (folder.path().join("a.pcapng"), folder.path().join("b.pcapng.xz"));
    write(&plain, &packets);
    write(&packed, &packets);
    if run(test, "xz", &["-d"], &packed).is_none() {
        return;
    }
    assert!(std::fs::read(&plain).unwrap() == std::fs::read(folder.path().join("b.pcapng")).unwrap());
    let expected = read_file(&plain);
    run(test, "xz", &["-9", "--check=sha256", "--block-size=4096"], &plain);
    let read = read_file(&folder.path().join("a.pcapng.xz"));
    assert!(read == expected && read.len() == packets.len());
}

/// Time, bytes, original length and interface of each packet, as parsed by `pcap-parser`.
fn by_pcap_parser(path: &Path) -> Vec<(u64, Vec<u8>, u32, u32)> {
    let mut reader = pcap_parser::create_reader(1 << 20, std::fs::File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((len, found)) => {
                match found {
                    PcapBlockOwned::Legacy(packet) => {
                        let time_ns = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_usec);
                        packets.push((time_ns, packet.data.to_vec(), packet.origlen, 0));
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let time_ns = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                        packets.push((time_ns, packet.packet_data().to_vec(), packet.origlen, packet.if_id));
                    }
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => assert_eq!(interface.if_tsresol, 9),
                    _ => {}
                }
                reader.consume(len);
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn pcap_parser_reads_written_captures() {
    let packets = random_packets(&mut Rng::from_env(0x5e), 2000);
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pcap", "a.pcapng"] {
        let path = folder.path().join(name);
        write(&path, &packets);
        let ours: Vec<_> =
            read_file(&path).into_iter().map(|p| (p.time_ns, p.bytes, p.original_len_bytes, p.interface)).collect();
        assert!(by_pcap_parser(&path) == ours, "{name}");
        assert_eq!(ours.len(), packets.len());
    }
}

/// Only captures in which every packet is plain TCP or UDP: for these, tshark's 5-tuple equals ours.
#[test]
fn tshark_agrees_on_flow_counts() {
    let test = "tshark_agrees_on_flow_counts";
    let captures = traces_from_env().unwrap_or_else(|error| panic!("{error}"));
    let Some(captures) = captures else { return skip(test, "`FLOWLOOM_TRACES` is not set") };
    let folder = tempfile::tempdir().unwrap();
    for capture in captures {
        let mut packets = read_file(&capture);
        packets.truncate(20_000);
        let plain = folder.path().join("plain.pcap");
        write(&plain, &packets);
        let info = TraceInfo::read(&mut MergedReader::open(&[&plain]).unwrap()).unwrap();
        let count = |name: &str| info.protocols.iter().find(|p| p.name == name).map_or(0, |p| p.packets);
        if count("tcp") + count("udp") != info.packets {
            continue;
        }
        let fields = "ip.src ipv6.src tcp.srcport udp.srcport ip.dst ipv6.dst tcp.dstport udp.dstport";
        let options = ["-o", "ip.defragment:FALSE", "--disable-protocol", "gtp"];
        let fields: Vec<_> = fields.split(' ').collect();
        let Some(lines) = tshark(test, &options, &fields, &plain) else { return };
        let (mut one_way, mut both_ways) = (HashSet::new(), HashSet::new());
        for line in &lines {
            let cells: Vec<_> = line.split('\t').collect();
            let (from, to) = cells.split_at(4);
            one_way.insert(line);
            both_ways.insert((from.min(to).to_vec(), from.max(to).to_vec()));
        }
        let flows = &info.flows[2];
        eprintln!("{}: {} flows one way, {} both ways", capture.display(), one_way.len(), both_ways.len());
        assert_eq!((flows.one_way, flows.both_ways), (one_way.len() as u64, Some(both_ways.len() as u64)));
    }
}

#[test]
fn tshark_finds_no_bad_checksum_in_generated_traffic() {
    let test = "tshark_finds_no_bad_checksum_in_generated_traffic";
    let folder = tempfile::tempdir().unwrap();
    for profile in [Profile::Uni1, Profile::Mawi2021] {
        let path = folder.path().join("made.pcap");
        let options = TrafficOptions { packets: Some(5000), ipv6: Some(0.3), ..TrafficOptions::new(profile) };
        write_traffic(&path, &options);
        let protocols = ["ip", "tcp", "udp", "icmp", "icmpv6"];
        let fields = protocols.map(|protocol| format!("{protocol}.checksum.status"));
        let preferences = ["ip", "tcp", "udp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
        let options: Vec<&str> = preferences.iter().flat_map(|preference| ["-o", preference]).collect();
        let Some(lines) = tshark(test, &options, &fields.each_ref().map(String::as_str), &path) else { return };
        let mut good = [0; 5];
        for (number, line) in lines.iter().enumerate() {
            for (protocol, status) in line.split('\t').enumerate().filter(|(_, status)| !status.is_empty()) {
                assert_eq!(status, "1", "packet {number}, {}", protocols[protocol]);
                good[protocol] += 1;
            }
        }
        assert!(good[0] > 2000 && good[1] > 2000 && good[2] > 100 && good[3] + good[4] > 0, "{good:?}");
    }
}

/// Counts windows by a simple model from the addresses and ports that tshark reads.
#[test]
fn tshark_agrees_on_windows() {
    let test = "tshark_agrees_on_windows";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("uni1.pcap");
    // Two windows of active flows, partly overlapping.
    let base = TrafficOptions::new(Profile::Uni1);
    let options = TrafficOptions { snap_bytes: Some(128), duration_ns: Some(13_000_000_000), ..base };
    write_traffic(&path, &options);
    let info = TraceInfo::read(&mut MergedReader::open(&[&path]).unwrap()).unwrap();

    let fields = "frame.time_relative ip.src ip.dst ip.proto tcp.srcport udp.srcport tcp.dstport udp.dstport";
    let fields: Vec<_> = fields.split(' ').collect();
    let Some(lines) = tshark(test, &[], &fields, &path) else { return };
    let packets: Vec<(u64, Vec<&str>)> = lines
        .iter()
        .map(|line| {
            let cells: Vec<_> = line.split('\t').collect();
            let (seconds, fraction) = cells[0].split_once('.').unwrap();
            (seconds.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap(), cells[1..].to_vec())
        })
        .collect();
    assert_eq!(packets.len() as u64, info.packets);
    for (flows, cells) in info.flows.iter().zip([1, 2, 7]) {
        let keyed = packets.iter().filter(|(_, packet)| cells < 7 || packet[3..].iter().any(|port| !port.is_empty()));
        let keyed: Vec<(u64, &[&str])> = keyed.map(|(time, packet)| (*time, &packet[..cells])).collect();
        let mut seen = HashSet::new();
        let first: Vec<(u64, &[&str])> = keyed.iter().copied().filter(|(_, key)| seen.insert(*key)).collect();
        assert_eq!(flows.one_way, seen.len() as u64, "{}", flows.key);
        assert_eq!(flows.max_active_in_10s, most_in(&keyed, 10_000_000_000), "{}", flows.key);
        assert_eq!(flows.max_new_per_ms, most_in(&first, 1_000_000), "{}", flows.key);
    }
}

/// Maximum number of distinct keys within a window, by two pointers.
fn most_in(events: &[(u64, &[&str])], window_ns: u64) -> u64 {
    let (mut inside, mut begin, mut most) = (HashMap::new(), 0, 0);
    for (time, key) in events {
        *inside.entry(*key).or_insert(0) += 1;
        while events[begin].0 + window_ns <= *time {
            let count = inside.get_mut(events[begin].1).unwrap();
            *count -= 1;
            if *count == 0 {
                inside.remove(events[begin].1);
            }
            begin += 1;
        }
        most = most.max(inside.len());
    }
    most as u64
}
