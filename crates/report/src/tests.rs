// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::BTreeSet;

use super::*;
use flowloom_isa::asm;
use flowloom_plan::Scheme;
use flowloom_plan::{Options, plan};
use flowloom_verifier::verify;

fn toy() -> Program {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions/ebpf/toy/toy_printed.bpf");
    asm::program("toy.bpf", &std::fs::read_to_string(path).unwrap()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn explained(program: &Program, options: &Options) -> (Plan, Explanation) {
    let proof = verify(program, &flowloom_verifier::Options::default()).unwrap();
    let plan = plan(program, &proof, options).unwrap_or_else(|refusal| panic!("{refusal}"));
    let explanation = Explanation::of(program, &plan);
    (plan, explanation)
}

fn schemed(scheme: Scheme) -> Options {
    Options { schemes: [("stats".to_owned(), scheme)].into(), queues: 3, ..Options::default() }
}

#[test]
fn figures_equal_the_plan_s() {
    for options in [Options::default(), schemed(Scheme::Flush), schemed(Scheme::Schedule)] {
        let (plan, explanation) = explained(&toy(), &options);
        let parts = &explanation.latency;
        let sum = parts.stages + parts.framing + parts.schedulers + parts.buffers + parts.realignment + parts.last_word;
        assert_eq!((sum, explanation.latency_cycles), (plan.latency_cycles(), plan.latency_cycles()));
        let waits = (parts.framing, parts.realignment, parts.last_word);
        assert_eq!(waits, (2, 0, 0), "a register at either end, and the toy needs no length");
        let counts: Vec<usize> = explanation.stage.iter().map(|stage| stage.operations.len()).collect();
        assert_eq!(counts, plan.operations());
        assert_eq!(
            (explanation.operations, explanation.ilp_max),
            (counts.iter().sum(), counts.iter().copied().max().unwrap())
        );
        assert_eq!(
            (explanation.stage.len(), explanation.live.len()),
            (plan.schedule.stages as usize, plan.schedule.stages as usize + 1)
        );
        assert_eq!(explanation.passes.len(), flowloom_plan::PASSES.len());
        let stats = &explanation.maps[0];
        assert_eq!((stats.hazard, stats.users.len()), (plan.maps[0].scheme.as_str(), 2));
        assert_eq!(stats.queues, if stats.hazard == "schedule" { 3 } else { 0 });
        assert_eq!(stats.restart_stage.is_some(), stats.hazard == "flush");
    }
}

#[test]
fn each_operation_has_its_instruction_and_line() {
    let program = toy();
    let (_, explanation) = explained(&program, &Options::default());
    assert_eq!(explanation.code.len(), 31);
    for operation in explanation.stage.iter().flat_map(|stage| &stage.operations) {
        let code = explanation.code.iter().find(|own| own.instruction == operation.instruction).unwrap();
        assert!(code.operations.contains(&operation.node) && code.becomes == "operations", "{operation:?}");
        let line = &explanation.lines[operation.line.unwrap()];
        assert!(line.instructions.contains(&operation.instruction) && line.stages.contains(&operation.begins_stage));
        assert_eq!(line.line, program.line_of(operation.instruction).unwrap().line);
    }
    let becomes: BTreeSet<&str> = explanation.code.iter().map(|own| own.becomes).collect();
    assert_eq!(becomes, BTreeSet::from(["operations", "wires", "nothing"]));
}

#[test]
fn operands_name_packet_bytes() {
    let text = explained(&toy(), &Options::default()).1.text(true);
    // The listing shows the number in host byte order; the packet has it in network byte order.
    for description in
        ["pkt[12..13] == 0xdd86", "look up stats[", "stats[0..7] += 1", "misses in stats", "6 < length[15:1]"]
    {
        assert!(text.contains(description), "`{description}` is not in\n{text}");
    }
    let (short, long) = (explained(&toy(), &Options::default()).1.text(false), text);
    assert!(short.lines().count() < 25 && short.lines().take(8).eq(long.lines().take(8)), "{short}");
}

/// Names that break out of elements and attributes unless they are escaped.
const HOSTILE: &str = "</code></title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;{{script}}\u{1}";

fn hostile() -> Program {
    let mut program = toy();
    program.name = HOSTILE.to_owned();
    program.maps[0].name = HOSTILE.to_owned();
    for line in &mut program.lines {
        line.file = format!("{HOSTILE}/a.c");
        line.text = HOSTILE.to_owned();
    }
    program
}

#[test]
fn names_are_escaped() {
    let (_, explanation) = explained(&hostile(), &Options::default());
    let page = explanation.html();
    assert_eq!(page.matches("<script").count(), 1, "only the script of the page");
    assert_eq!(page.matches("</script").count(), 1);
    assert!(!page.contains("<img") && !page.contains("alert(1)</script>"));
    let escaped_name = "&lt;/code&gt;&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img src=x";
    assert!(page.matches(escaped_name).count() > 10, "and the name is shown");
    assert!(page.contains("&amp;lt;{{script}}\u{fffd}"), "names are not template placeholders");
    // Every attribute is terminated: no tag has an odd number of quotes.
    let body = page.split_once("<body>").unwrap().1.split_once("<script>").unwrap().0;
    for tag in body.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        assert!(tag.matches('"').count() % 2 == 0 && !tag.contains('\''), "`{tag}`");
    }
}

#[test]
fn the_page_is_self_contained() {
    let (_, explanation) = explained(&toy(), &Options::default());
    let page = explanation.html();
    for reference in
        ["http:", "https:", "src=", "url(", "@import", "<link", "<iframe", "fetch(", "XMLHttpRequest", "{{"]
    {
        assert!(!page.contains(reference), "`{reference}`");
    }
    // Every reference has a target, once.
    let ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len());
    let mut targets = 0;
    for target in page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(target.strip_prefix('#').is_some_and(|id| unique.contains(id)), "`{target}`");
        targets += 1;
    }
    assert!(targets > 50, "{targets}");
    // Without a script, the tables have everything.
    for operation in explanation.stage.iter().flat_map(|stage| &stage.operations) {
        assert!(page.contains(&format!("<tr id=\"n{}\"", operation.node)));
    }
}

#[test]
fn numbers_are_grouped_and_tables_aligned() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    let rows = [["a", "5"], ["long", "123"]].map(|row| row.map(str::to_owned).to_vec());
    assert_eq!(text::table(&["row", "hits"], &rows, &[1]), "row   hits\na        5\nlong   123\n");
}
