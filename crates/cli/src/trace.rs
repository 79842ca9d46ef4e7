// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom trace`: describes and generates captures.

mod generate;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use flowloom_trace::{Census, Comparison, MergedReader, PacketCount, PaperRow, Profile, SizeCount, TraceInfo, Unit};
use serde_json::{Value, json};

pub(crate) use generate::generate;

use crate::args::{TraceInfoArgs, TraceProfilesArgs};
use crate::failure::Failure;
use crate::output::{counted, grouped, print, print_json, progress, quoted, table};

/// Name prefixes of numbers without a known header.
const UNKNOWN: [&str; 2] = ["ethertype", "ip.proto"];
/// Maximum number of rows printed for each prefix.
const SHOWN_UNKNOWN: usize = 6;

pub(crate) fn info(args: &TraceInfoArgs) -> Result<(), Failure> {
    let paper = args.profile.map(|profile| row_of(profile.0)).transpose()?;
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
        let mut value = serde_json::to_value(&info).map_err(|e| Failure::input(&e))?;
        if let Some((profile, row)) = paper {
            value["paper"] = beside_json(&info, profile, row)?;
        }
        return print_json(&value);
    }
    let seconds = info.duration_ns as f64 / 1e9;
    let mut text = format!(
        "{}, {} on the wire ({} captured), {:.1} bytes a packet, {seconds:.6} s\n",
        counted(info.packets as usize, "packet"),
        counted(info.wire_bytes as usize, "byte"),
        grouped(info.captured_bytes),
        info.mean_len_bytes,
    );
    text.push_str(&format!(
        "{} cut short, {} back in time\n\n",
        counted(info.cut_packets as usize, "packet"),
        counted(info.steps_back_in_time as usize, "step"),
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
    if let Some((profile, row)) = paper {
        text.push_str(&beside_text(&info, profile, row));
    }
    print(&text)
}

fn row_of(profile: Profile) -> Result<(Profile, &'static PaperRow), Failure> {
    profile.row().map(|row| (profile, row)).ok_or_else(|| {
        let with_row = Profile::ALL.into_iter().filter(|profile| profile.row().is_some());
        let (name, names) = (profile.name(), quoted(with_row.map(Profile::name)));
        Failure::Input(format!("no paper prints figures of `{name}`, expected one of {names}"))
    })
}

fn beside_json(info: &TraceInfo, profile: Profile, row: &PaperRow) -> Result<Value, Failure> {
    let mut figures = Vec::new();
    for figure in info.compare(row) {
        let mut value = serde_json::to_value(&figure).map_err(|e| Failure::input(&e))?;
        value["is_near"] = figure.is_within_tolerance().into();
        figures.push(value);
    }
    Ok(json!({
        "profile": profile.name(),
        "source": row.source,
        "covers_window": info.covers_window(),
        "figures": figures,
    }))
}

fn beside_text(info: &TraceInfo, profile: Profile, row: &PaperRow) -> String {
    let cell = |figure: &Comparison, value: f64| match figure.unit {
        Unit::Bytes => format!("{value:.1} B"),
        Unit::Flows => grouped(value as u64),
        Unit::Share => format!("{:.1}%", value * 100.0),
    };
    let rows: Vec<Vec<String>> = info
        .compare(row)
        .iter()
        .map(|figure| {
            let unit = if figure.unit == Unit::Share { " points" } else { "%" };
            let within = match figure.limit {
                Some(limit) => {
                    format!("{} {:.0}%", if figure.is_within_tolerance() { "within" } else { "OUTSIDE" }, limit * 100.0)
                }
                None => "-".to_owned(),
            };
            vec![
                figure.figure.clone(),
                cell(figure, figure.measured),
                cell(figure, figure.paper),
                format!("{:+.1}{unit}", figure.deviation * 100.0),
                within,
            ]
        })
        .collect();
    let mut text = format!("\n`{}` beside {}\n", profile.name(), row.source);
    text.push_str(&table(&["figure", "here", "paper", "deviation", "limit"], &rows, &[1, 2, 3]));
    if !info.covers_window() {
        text.push_str("the capture is shorter than the 10 s of the paper's figures\n");
    }
    text
}

pub(crate) fn profiles(args: &TraceProfilesArgs) -> Result<(), Failure> {
    if args.json {
        let all = Profile::ALL
            .into_iter()
            .map(|profile| json!({ "name": profile.name(), "summary": profile.summary(), "paper": profile.row() }));
        return print_json(&all.collect());
    }
    let figures = |figures: [Option<u64>; 3]| {
        let cells = figures.map(|figure| figure.map_or_else(|| "-".to_owned(), grouped));
        if figures == [None; 3] { "-".to_owned() } else { cells.join(" / ") }
    };
    let rows: Vec<Vec<String>> = Profile::ALL
        .into_iter()
        .map(|profile| {
            let row = profile.row();
            vec![
                profile.name().to_owned(),
                row.map_or_else(|| "-".to_owned(), |row| format!("{:.0} B", row.mean_len_bytes)),
                figures(row.map_or([None; 3], |row| row.active_in_10s)),
                figures(row.map_or([None; 3], |row| row.new_per_ms)),
                row.map_or_else(|| "-".to_owned(), |row| row.source.to_owned()),
                profile.summary().to_owned(),
            ]
        })
        .collect();
    let header = ["profile", "mean", "active in 10 s", "new in 1 ms", "source", "what it is"];
    let mut text = table(&header, &rows, &[1, 2, 3]);
    text.push_str("\nflows by source / by pair of addresses / by 5-tuple, each direction by itself\n");
    print(&text)
}

/// Text of a class of lengths.
fn lengths(class: &SizeCount) -> String {
    match class.below_bytes {
        Some(below) => format!("{} to {} B", class.from_bytes, below - 1),
        None => format!("{} B and more", class.from_bytes),
    }
}

/// Packet counts by header. Numbers without a known header may be many: text has the most frequent, `--json` all.
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
        // A single remaining number is printed itself instead of `other`.
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
