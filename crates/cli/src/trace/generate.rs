// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom trace gen`: generates traffic for a function or of a profile.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_trace::{CaptureWriter, Profile, START_NS, Traffic, TrafficOptions};
use flowloom_verify::{Stimulus, StimulusOptions};
use flowloom_wire::field::FieldId;
use serde_json::json;

use crate::args::TraceGenArgs;
use crate::failure::Failure;
use crate::files::Files;
use crate::output::{counted, grouped, print, print_json, progress, warn};
use crate::verify::{keeps_ports, write_trace};
use flowloom_session::{ELF_MAGIC, source};

/// Default number of packets for a function.
const FUNCTION_PACKETS: u64 = 20_000;
/// Maximum number of rows without packets that are printed.
const SHOWN_ROWS: usize = 20;
const PROGRESS_PACKETS: u64 = 1 << 14;

pub(crate) fn generate(args: &TraceGenArgs) -> Result<(), Failure> {
    match (args.profile, args.function.as_ref().or(args.function_option.as_ref())) {
        (Some(profile), _) => of_profile(args, profile.0),
        (None, Some(function)) => for_function(args, function),
        (None, None) => Err(Failure::Input("expected a function or --profile NAME".to_owned())),
    }
}

fn for_function(args: &TraceGenArgs, path: &PathBuf) -> Result<(), Failure> {
    let bytes = fs::read(path).map_err(|e| Failure::file("read", path, &e))?;
    if bytes.starts_with(ELF_MAGIC) {
        return Err(Failure::Input(format!("`{}` is an object, expected an `.efsm` source", path.display())));
    }
    let (function, warnings) = source(path, bytes, &args.params)?;
    warn(&warnings);
    Files::default().reads("the function", [path]).writes("-w", Some(&args.write)).check()?;
    if !keeps_ports(&args.write) && reads_ports(&function) {
        return Err(Failure::Input(format!(
            "-w `{}` is pcap, which keeps no ports, and rows of `{}` depend on `pkt.port`; name a file that ends in \
             `.pcapng`",
            args.write.display(),
            function.name
        )));
    }
    let count = args.count.unwrap_or(FUNCTION_PACKETS);
    let mut stimulus = Stimulus::new(Arc::clone(&function), args.seed, StimulusOptions::of(&function));
    let bar = progress("packets", Some(count));
    let packets = (0..count).map(|_| stimulus.next_packet());
    write_trace(&args.write, packets.inspect(|_| bar.inc(1)))?;
    bar.finish_and_clear();
    let (counts, unreached) = (stimulus.counts(), stimulus.unreached_rows());
    if args.json {
        let unreached: Vec<_> = unreached.iter().map(|(line, text)| json!({"line": line, "text": text})).collect();
        return print_json(&json!({
            "capture": args.write.display().to_string(),
            "packets": counts.packets,
            "in_rows": counts.in_rows,
            "unreached_rows": unreached,
            "seed": args.seed,
        }));
    }
    let mut text = format!(
        "{}: {} for `{}` (seed {}), {} of them match a row\n",
        args.write.display(),
        counted(counts.packets as usize, "packet"),
        function.name,
        args.seed,
        grouped(counts.in_rows)
    );
    if !unreached.is_empty() {
        let rows: usize = function.elements.iter().map(|element| element.rows.len()).sum();
        text.push_str(&format!("no packet reaches {} of its {}:\n", unreached.len(), counted(rows, "row")));
        for (line, row) in unreached.iter().take(SHOWN_ROWS) {
            text.push_str(&format!("  {line}: {row}\n"));
        }
        if unreached.len() > SHOWN_ROWS {
            text.push_str(&format!("  and {} more; --json lists all\n", unreached.len() - SHOWN_ROWS));
        }
    }
    print(&text)
}

/// True if the outcome of a packet may depend on its ingress port.
fn reads_ports(function: &Function) -> bool {
    let is_port = |field: &FieldId| field.name() == "pkt.port";
    function.elements.iter().any(|element| {
        let key = element.stateful.as_ref().and_then(|stateful| stateful.key.as_ref());
        key.is_some_and(|key| key.fields().any(|field| is_port(&field)))
            || element.otherwise.actions.fields_read().iter().any(is_port)
            || element.rows.iter().any(|row| row.fields().iter().any(is_port))
    })
}

fn of_profile(args: &TraceGenArgs, profile: Profile) -> Result<(), Failure> {
    let options = TrafficOptions {
        seed: args.seed,
        packets: args.count,
        duration_ns: args.duration,
        rate: args.rate,
        snap_bytes: args.snaplen,
        flows: args.flows,
        size_bytes: args.size,
        exponent: args.exponent,
        new_per_minute: args.new_flows,
        ipv6: args.ipv6.map(|percent| percent / 100.0),
        protocol: args.protocol,
        ..TrafficOptions::new(profile)
    };
    let failed = |e: flowloom_trace::TraceError| Failure::input(&e);
    let mut traffic = Traffic::new(&options).map_err(failed)?;
    let mut writer = match args.snaplen {
        Some(snap_bytes) => CaptureWriter::create_with_snap_len(&args.write, snap_bytes),
        None => CaptureWriter::create(&args.write),
    }
    .map_err(failed)?;
    let bar = progress("packets", Some(options.expected_packets().map_err(failed)?));
    let (mut packets, mut wire_bytes, mut last_ns) = (0u64, 0u64, 0);
    while let Some(packet) = traffic.next_packet() {
        writer.write(packet.time_ns, packet.port, packet.len_bytes, None, packet.bytes).map_err(failed)?;
        packets += 1;
        wire_bytes += u64::from(packet.len_bytes);
        last_ns = packet.time_ns - START_NS;
        if packets.is_multiple_of(PROGRESS_PACKETS) {
            bar.set_position(packets);
        }
    }
    writer.finish().map_err(failed)?;
    bar.finish_and_clear();
    let mean_len_bytes = if packets == 0 { 0.0 } else { wire_bytes as f64 / packets as f64 };
    if args.json {
        return print_json(&json!({
            "capture": args.write.display().to_string(),
            "profile": profile.name(),
            "packets": packets,
            "wire_bytes": wire_bytes,
            "mean_len_bytes": mean_len_bytes,
            "duration_ns": last_ns,
            "seed": args.seed,
        }));
    }
    print(&format!(
        "{}: {} of `{}` (seed {}), {mean_len_bytes:.1} bytes on average, {:.6} s\n",
        args.write.display(),
        counted(packets as usize, "packet"),
        profile.name(),
        args.seed,
        last_ns as f64 / 1e9
    ))
}
