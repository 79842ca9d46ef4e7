// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults planted in the parse and rewrite blocks: each one makes a block differ from the reference.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{Fault, block_path};
use crate::parse::parses_as_the_reference;
use crate::rewrite::rewrites_as_the_reference;
use crate::vector::words_are_those_of_the_image;

const LINK: &str = "overlay/fl_parse_link";
const IP: &str = "overlay/fl_parse_ip";
const EXTENSION: &str = "overlay/fl_parse_extension";
const TRANSPORT: &str = "overlay/fl_parse_transport";
const USER: &str = "overlay/fl_parse_user";
const FIELDS: &str = "overlay/fl_parse_fields";
const CLOCK: &str = "overlay/fl_clock_units";
const CONFIG: &str = "overlay/fl_config_word";
const VECTOR: &str = "overlay/fl_header_vector";
const TARGETS: &str = "overlay/fl_rewrite_targets";
const HEADERS: &str = "overlay/fl_rewrite_headers";
const CHECKSUM: &str = "overlay/fl_rewrite_checksum";
const PLACE: &str = "overlay/fl_place_words";
const REWRITER: &str = "overlay/fl_header_rewriter";

const fn fault(name: &'static str, block: &'static str, text: &'static str, replacement: &'static str) -> Fault {
    Fault { name, block, text, replacement }
}

const PARSER_FAULTS: &[Fault] = &[
    fault("a tag that is not present is valid", LINK, "has_q[1] && kind_q[0].is_tag", "kind_q[0].is_tag"),
    fault("a fifth label is parsed", LINK, "kind.is_mpls ? is_bottom :", "kind.is_mpls ? is_bottom || labels[3] :"),
    fault("later fragments have a transport header", IP, "&& !later_fragment;", "&& (!later_fragment || is_4);"),
    fault("the payload of IPv4 may be negative", IP, "&& !payload_4[16];", "&& (!payload_4[16] || is_4);"),
    fault("options may be longer than the packet", EXTENSION, "&& !room[14] &&", "&& (!room[14] || !left[16]) &&"),
    fault("an authentication header may have no data", EXTENSION, "&& head_q[23:16] == '0);", "&& &head_q[23:16]);"),
    fault("the last fragment header counts", EXTENSION, "&& !parse_q.valid[Ipv6Fragment]) begin", ") begin"),
    fault("the larger length of UDP counts", TRANSPORT, "udp_left3_q < parse3_q.left", "udp_left3_q > parse3_q.left"),
    fault(
        "a header beyond the window is parsed",
        TRANSPORT,
        "(has_min && !fits_q)",
        "(has_min && !fits_q && is_udp_q)",
    ),
    fault(
        "the second user header counts",
        USER,
        "selected[1] && !selected[0], selected[0]}",
        "selected[1], selected[0] && !selected[1]}",
    ),
    fault("GTP-U selects a user header", USER, "== '1 && !is_gtpu_q;", "== '1 && (!is_gtpu_q || equal_q[i] == '1);"),
    fault(
        "a user header may be longer than the packet",
        USER,
        "room_halves >= 16'(halves)",
        "room_halves >= 16'(halves) || |halves",
    ),
    fault(
        "an acknowledgement counts in the next sequence number",
        FIELDS,
        "32'(fields_q[TcpIsFin][0])",
        "32'(fields_q[TcpIsAck][0])",
    ),
    fault("the reciprocal has 64 bits", CLOCK, "{rest[0], high, low}", "{rest[0] & !rest[0], high, low}"),
    fault("the banks are one", CONFIG, "words_q[bank_i];", "words_q[bank_i & !bank_i];"),
];

const VECTOR_FAULTS: &[Fault] = &[
    fault(
        "a constant is taken from the field before",
        VECTOR,
        "constant_q <= constant;",
        "constant_q <= constant ^ fields_q[Ports];",
    ),
    fault("a presence bit needs all headers", VECTOR, "(valid_i & headers) != '0;", "(valid_i & headers) == headers;"),
];

const REWRITER_FAULTS: &[Fault] = &[
    fault(
        "fields that are not written are written",
        TARGETS,
        "(selected_q & written_q) != '0;",
        "selected_q != '0 || (selected_q & written_q) != '0;",
    ),
    fault(
        "the traffic class takes its neighbours along",
        HEADERS,
        "written_i[IpTos], 8, 20)",
        "written_i[IpTos], 12, 20)",
    ),
    fault(
        "a word of an address is written in IPv4",
        HEADERS,
        "place(is_4, written_i[IpTos], 8, 16) |",
        "place(is_4, written_i[IpTos] || written_i[IpSrc1], 8, 16) |",
    ),
    fault(
        "words that are not written count",
        CHECKSUM,
        "return (mask != '0) ?",
        "return (mask != '0 || old != changed || &old) ?",
    ),
    fault(
        "a computed 0 is sent for UDP",
        CHECKSUM,
        "(is_udp_q[5] && transport == '0) ? '1 :",
        "(is_udp_q[5] && transport == '1) ? '1 :",
    ),
    fault(
        "UDP without a checksum gets one",
        CHECKSUM,
        "!(old1_q.is_udp && old1_q.transport == '0)",
        "!(old1_q.is_udp && old1_q.transport == '1)",
    ),
    fault(
        "the sum is folded once",
        CHECKSUM,
        "transport5_q[15:0] + 16'(transport5_q[16])",
        "transport5_q[15:0] + 16'(transport5_q[16] && ip5_q[16])",
    ),
    fault(
        "ICMP covers the addresses",
        CHECKSUM,
        "has_pseudo_header: !valid_i[Icmp],",
        "has_pseudo_header: !valid_i[Icmp6],",
    ),
    fault("user headers are not covered", CHECKSUM, "user_touched_q || (addr", "(user_touched_q && is_6_q) || (addr"),
    fault("headers are placed in two groups", PLACE, "group_q == 3'(group)", "(group_q & 3'd1) == 3'(group)"),
    fault("labels do not follow tags", REWRITER, "if (tags == 2'(at)) begin", "if (at == 0) begin"),
];

/// The first line of what a planted fault makes differ; `None` if nothing does.
fn find(run: impl FnOnce()) -> Option<String> {
    let error = catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = error.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(!text.contains("verilator"), "{text}");
    Some(text.lines().next().unwrap_or_default().chars().take(100).collect())
}

fn find_in_parser(fault: &Fault) -> Option<String> {
    find(|| _ = parses_as_the_reference(fault.name, 128, 1500, Some(fault)))
}

fn find_in_vector(fault: &Fault) -> Option<String> {
    find(|| _ = words_are_those_of_the_image(fault.name, Some(fault)))
}

fn find_in_rewriter(fault: &Fault) -> Option<String> {
    find(|| _ = rewrites_as_the_reference(fault.name, 128, 1000, Some(fault)))
}

/// Each fault has its place in the sources.
#[test]
fn every_fault_has_its_place() {
    for fault in PARSER_FAULTS.iter().chain(VECTOR_FAULTS).chain(REWRITER_FAULTS) {
        let text = std::fs::read_to_string(block_path(fault.block)).unwrap();
        assert_eq!(text.matches(fault.text).count(), 1, "{}: `{}`", fault.name, fault.text);
    }
}

/// The names of the faults that are not found, of those whose names contain `only`. Prints what finds each.
pub(crate) fn missed(only: &str) -> Vec<&'static str> {
    let mut missed = Vec::new();
    type Find = fn(&Fault) -> Option<String>;
    let groups: [(&[Fault], Find); 3] =
        [(PARSER_FAULTS, find_in_parser), (VECTOR_FAULTS, find_in_vector), (REWRITER_FAULTS, find_in_rewriter)];
    for (faults, find) in groups {
        for fault in faults.iter().filter(|fault| fault.name.contains(only)) {
            let found = find(fault);
            println!("FAULT {}: {}", fault.name, found.as_deref().unwrap_or("not found"));
            missed.extend(found.is_none().then_some(fault.name));
        }
    }
    missed
}
