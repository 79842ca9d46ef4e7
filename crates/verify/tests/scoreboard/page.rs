// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of the book.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flowloom_testkit::markdown::wrapped;

use super::{Came, Row};

pub fn render(rows: &[Row], objects: usize, captures: usize) -> String {
    let mut page = format!(
        "# Linux's own programs\n\n\
         <!-- Made by `make evidence ONLY=scoreboard`. -->\n\n\
         Nobody wrote these programs for Flowloom: they are all XDP programs of `samples/bpf` and\n\
         `tools/testing/selftests/bpf` in Linux 6.1 and 6.12, compiled by clang from Debian's packages\n\
         (`scripts/linux-objects`), and the objects of Debian's `xdp-tools`. Each is read as it is, adapted to the running\n\
         kernel where it asks for that, and explored: packets, contents of maps and settings are sought that run as many\n\
         of its instructions as can be run. On these, on random changes of them and on samples of {captures} captures the\n\
         interpreter and the kernel give the same verdict, ports, bytes, events and maps.\n\n\
         Maps whose size a program's own loader sets hold 8 entries; maps of maps for which it says later what they hold hold\n\
         arrays of two 4-byte values. A slot is eight bytes of a program: an instruction, or half of a\n\
         64-bit load. The verifier proves a program safe before it runs; every run is compared with its proof. How many\n\
         instructions it processes, on all paths together, stands beside each, and how many the kernel's verifier does{}.\n\n{}",
        ratios(rows),
        summary(rows, objects)
    );
    page.push_str("\n## Compared\n\n| object | program | slots | reached | packets | states | processed | by the kernel |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for row in rows {
        if let Came::Equal { packets, cases } = row.came {
            let (object, program, slots, percent) = (&row.object, &row.program, row.slots, row.percent());
            let processed = match &row.verified {
                Some(Ok(processed)) => processed.to_string(),
                _ => "refused".to_owned(),
            };
            let kernel = row.kernel_walked.map_or_else(|| "-".to_owned(), |walked| walked.to_string());
            let _ = writeln!(
                page,
                "| {object} | `{program}` | {slots} | {percent}% | {packets} | {cases} | {processed} | {kernel} |"
            );
        }
    }
    let partly: Vec<&Row> =
        rows.iter().filter(|row| matches!(row.came, Came::Equal { .. }) && row.reached < row.slots).collect();
    if !partly.is_empty() {
        page.push_str("\n## Not reached\n\nFor each piece that no packet reached, why.\n\n");
        for row in partly {
            let _ = writeln!(
                page,
                "- {} `{}`, {} of {} slots:",
                row.object,
                row.program,
                row.slots - row.reached,
                row.slots
            );
            for (why, pieces) in reasons(row) {
                let _ = writeln!(page, "  - {}: {why}", pieces.join(", "));
            }
        }
    }
    let otherwise: Vec<&Row> = rows.iter().filter(|row| row.is_judged_otherwise()).collect();
    if !otherwise.is_empty() {
        page.push_str("\n## Judged otherwise by our verifier\n\n");
        otherwise.iter().for_each(|row| _ = writeln!(page, "- {row}"));
    }
    for (title, words, pick) in SECTIONS {
        let told: Vec<(&Row, &str)> = rows.iter().filter_map(|row| Some((row, pick(&row.came)?))).collect();
        if told.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {title}\n\n{words}\n\n| object | program | reason |\n| --- | --- | --- |\n");
        for (row, why) in told {
            let _ = writeln!(
                page,
                "| {} | `{}` | {} |",
                row.object,
                row.program,
                why.replace('|', "\\|").replace('\n', " ")
            );
        }
    }
    wrapped(&page)
}

type Section = (&'static str, &'static str, fn(&Came) -> Option<&str>);

const SECTIONS: [Section; 5] = [
    ("Refused", "They ask for what Flowloom does not have, and it says so.", |came| match came {
        Came::Refused(why) => Some(why),
        _ => None,
    }),
    ("Not compared", "They run, but what they do depends on the machine.", |came| match came {
        Came::Incomparable(why) => Some(why),
        _ => None,
    }),
    (
        "Refused by the kernel",
        "The kernel's verifier does not take them, most of them on purpose: they test it. There is nothing to compare with.",
        |came| match came {
            Came::NotInKernel(why) => Some(why),
            _ => None,
        },
    ),
    ("Not read", "", |came| match came {
        Came::Unread(why) => Some(why),
        _ => None,
    }),
    ("Different", "", |came| match came {
        Came::Differs(why) => Some(why),
        _ => None,
    }),
];

/// Median and largest ratio of instructions visited by the two verifiers.
fn ratios(rows: &[Row]) -> String {
    let mut all: Vec<f64> = rows.iter().filter_map(Row::ratio).collect();
    all.sort_by(f64::total_cmp);
    match (all.get(all.len() / 2), all.last()) {
        (Some(median), Some(most)) => {
            format!(": ours processes {median:.2} times as many in the median, {most:.2} at most")
        }
        _ => String::new(),
    }
}

/// Unreached ranges, by reason.
fn reasons(row: &Row) -> BTreeMap<String, Vec<String>> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for gap in &row.gaps {
        let piece =
            if gap.first == gap.last { gap.first.to_string() } else { format!("{} to {}", gap.first, gap.last) };
        by_reason.entry(gap.why.to_string().replace('\n', " ")).or_default().push(piece);
    }
    by_reason
}

/// Text of the totals.
pub fn summary(rows: &[Row], objects: usize) -> String {
    let count = |f: fn(&Came) -> bool| rows.iter().filter(|row| f(&row.came)).count();
    let equal = count(|came| matches!(came, Came::Equal { .. }));
    let whole = rows.iter().filter(|row| matches!(row.came, Came::Equal { .. }) && row.reached == row.slots).count();
    let low = rows.iter().filter(|row| row.is_low()).count();
    let safe =
        rows.iter().filter(|row| matches!((&row.came, &row.verified), (Came::Equal { .. }, Some(Ok(_))))).count();
    let unsafe_to_both =
        rows.iter().filter(|row| matches!((&row.came, &row.verified), (Came::NotInKernel(_), Some(Err(_))))).count();
    let lines = [
        (objects, "objects"),
        (rows.len(), "XDP programs"),
        (rows.len() - count(|came| matches!(came, Came::Unread(_))), "are read"),
        (equal, "run and agree with the kernel"),
        (whole, "of these run every instruction"),
        (low, "of these run less than 80% of their instructions"),
        (safe, "of these our verifier proves safe"),
        (count(|came| matches!(came, Came::Differs(_))), "disagree with the kernel"),
        (count(|came| matches!(came, Came::Refused(_))), "are refused by name"),
        (count(|came| matches!(came, Came::Incomparable(_))), "run, and cannot be compared"),
        (count(|came| matches!(came, Came::NotInKernel(_))), "are refused by the kernel's verifier"),
        (unsafe_to_both, "of these our verifier refuses too"),
    ];
    let mut text = String::from("| count | |\n| ---: | --- |\n");
    for (number, what) in lines {
        let _ = writeln!(text, "| {number} | {what} |");
    }
    text
}
