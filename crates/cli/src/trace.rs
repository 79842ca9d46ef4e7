//! `flowloom trace`: what captures hold, and traffic made for a function.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use flowloom_trace::{Census, MergedReader, PacketCount, SizeCount};
use flowloom_verify::{Stimulus, StimulusOptions};
use serde_json::json;

use crate::args::{TraceGenArgs, TraceInfoArgs};
use crate::failure::Failure;
use crate::load::{ELF_MAGIC, source};
use crate::output::{grouped, print, print_json, progress, table, warn};
use crate::verify::write_trace;

/// How the names of numbers begin that belong to no header that is parsed.
const UNKNOWN: [&str; 2] = ["ethertype", "ip.proto"];
/// How many of each are shown.
const SHOWN_UNKNOWN: usize = 6;

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
        "{} packets cut short, {} steps back in time\n\n",
        grouped(info.cut_packets),
        grouped(info.steps_back_in_time),
    ));
    text.push_str(&table(&["header", "packets"], &protocols(&info.protocols), &[1]));
    text.push('\n');
    let rows: Vec<Vec<String>> = info
        .flows
        .iter()
        .map(|f| {
            let both = f.both_ways.map_or_else(|| "-".to_owned(), grouped);
            let numbers = [f.packets, f.one_way].map(grouped).into_iter().chain([both]);
            let most = [f.max_active_in_10s, f.max_new_per_ms].map(grouped);
            std::iter::once(f.key.to_owned()).chain(numbers).chain(most).collect()
        })
        .collect();
    let header = ["flow key", "packets", "flows", "both ways as one", "most in 10 s", "most new in 1 ms"];
    text.push_str(&table(&header, &rows, &[1, 2, 3, 4, 5]));
    text.push('\n');
    let rows: Vec<Vec<String>> = info
        .sizes
        .iter()
        .map(|class| {
            let share = 100.0 * info.share(class.from_bytes, class.below_bytes);
            vec![lengths(class), grouped(class.packets), format!("{share:.1}%")]
        })
        .collect();
    text.push_str(&table(&["length", "packets", "share"], &rows, &[1, 2]));
    print(&text)
}

/// A class of lengths in words.
fn lengths(class: &SizeCount) -> String {
    match class.below_bytes {
        Some(below) => format!("{} to {} B", class.from_bytes, below - 1),
        None => format!("{} B and more", class.from_bytes),
    }
}

/// Headers with their packets. Of the numbers that name no header that we know there may be hundreds: people see the most
/// frequent, `--json` has all.
fn protocols(counts: &[PacketCount]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut unknown: BTreeMap<&str, Vec<&PacketCount>> = BTreeMap::new();
    for count in counts {
        match UNKNOWN.iter().find(|kind| count.name.starts_with(**kind)) {
            Some(kind) => unknown.entry(kind).or_default().push(count),
            None => rows.push(vec![count.name.clone(), grouped(count.packets)]),
        }
    }
    for (kind, mut numbers) in unknown {
        numbers.sort_by_key(|count| Reverse(count.packets));
        // One that would stand alone behind `other` is shown itself.
        let shown = if numbers.len() <= SHOWN_UNKNOWN + 1 { numbers.len() } else { SHOWN_UNKNOWN };
        let (shown, others) = numbers.split_at(shown);
        rows.extend(shown.iter().map(|count| vec![count.name.clone(), grouped(count.packets)]));
        if !others.is_empty() {
            let packets = others.iter().map(|count| count.packets).sum();
            rows.push(vec![format!("{} other {kind}s", others.len()), grouped(packets)]);
        }
    }
    rows
}

pub(crate) fn generate(args: &TraceGenArgs) -> Result<(), Failure> {
    let bytes = fs::read(&args.function).map_err(|e| Failure::file("read", &args.function, &e))?;
    if bytes.starts_with(ELF_MAGIC) {
        return Err(Failure::Input(format!(
            "`{}` is an object: traffic is made for `.efsm` sources",
            args.function.display()
        )));
    }
    let (function, warnings) = source(&args.function, bytes, &args.params)?;
    warn(&warnings);
    let mut stimulus = Stimulus::new(Arc::clone(&function), args.seed, StimulusOptions::of(&function));
    let bar = progress("packets", Some(args.packets));
    let packets = (0..args.packets).map(|_| stimulus.next_packet());
    write_trace(&args.write, packets.inspect(|_| bar.inc(1)))?;
    bar.finish_and_clear();
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
