//! `flowloom trace`: what captures hold, and traffic made for a function.

use std::fs;
use std::sync::Arc;

use flowloom_trace::{Census, MergedReader};
use flowloom_verify::{Stimulus, StimulusOptions};
use serde_json::json;

use crate::args::{TraceGenArgs, TraceInfoArgs};
use crate::failure::Failure;
use crate::load::source;
use crate::output::{grouped, print, print_json, progress, table, warn};
use crate::verify::write_trace;

pub(crate) fn info(args: &TraceInfoArgs) -> Result<(), Failure> {
    let mut reader = MergedReader::open(&args.captures).map_err(|e| Failure::input(&e))?;
    let bar = progress("packets", None);
    let mut census = Census::new();
    while let Some(packet) = reader.next_packet().map_err(|e| Failure::input(&e))? {
        census.add(&packet);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let info = census.finish();
    if args.json {
        let value = serde_json::to_value(&info).map_err(|e| Failure::input(&e))?;
        return print_json(&value);
    }
    let seconds = info.duration_ns as f64 / 1e9;
    let mut text = format!(
        "{} packets, {} bytes on the wire ({} captured), {:.1} bytes a packet, {seconds:.6} s\n",
        grouped(info.packets),
        grouped(info.wire_bytes),
        grouped(info.captured_bytes),
        info.mean_len_bytes,
    );
    text.push_str(&format!(
        "{} packets cut short, {} steps back in time, at most {} new flows in a millisecond\n\n",
        grouped(info.cut_packets),
        grouped(info.steps_back_in_time),
        grouped(info.max_new_flows_per_ms),
    ));
    let rows: Vec<Vec<String>> = info.protocols.iter().map(|p| vec![p.name.clone(), grouped(p.packets)]).collect();
    text.push_str(&table(&["header", "packets"], &rows, &[1]));
    text.push('\n');
    let rows: Vec<Vec<String>> = info
        .flows
        .iter()
        .map(|f| {
            let both = f.both_ways.map_or_else(|| "-".to_owned(), grouped);
            vec![f.key.to_owned(), grouped(f.packets), grouped(f.one_way), both]
        })
        .collect();
    text.push_str(&table(&["flow key", "packets", "flows", "both ways as one"], &rows, &[1, 2, 3]));
    print(&text)
}

pub(crate) fn generate(args: &TraceGenArgs) -> Result<(), Failure> {
    let bytes = fs::read(&args.function).map_err(|e| Failure::file("read", &args.function, &e))?;
    let (function, warnings) = source(&args.function, bytes, &args.params)?;
    warn(&warnings);
    let mut stimulus = Stimulus::new(Arc::clone(&function), args.seed, StimulusOptions::of(&function));
    let packets = stimulus.take_packets(args.packets as usize);
    write_trace(&args.write, &packets)?;
    let counts = stimulus.counts();
    if args.json {
        return print_json(&json!({
            "capture": args.write.display().to_string(),
            "packets": counts.packets,
            "in_rows": counts.in_rows,
            "seed": args.seed,
        }));
    }
    print(&format!(
        "{}: {} packets for `{}` (seed {}), {} of them match a row\n",
        args.write.display(),
        grouped(counts.packets),
        function.name,
        args.seed,
        grouped(counts.in_rows)
    ))
}
