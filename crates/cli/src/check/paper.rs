// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes of functions as printed in a paper.

/// Table entries, flow registers and global registers of a stateful element.
pub(super) type Size = [u64; 3];

pub(super) struct PaperRow {
    /// Name of our function.
    function: &'static str,
    /// Name in the paper.
    pub(super) use_case: &'static str,
    /// Citation of the table.
    pub(super) source: &'static str,
    /// Sizes of its stateful elements, in order.
    pub(super) elements: &'static [Size],
}

const TABLE_3: &str = "FlowBlaze table 3";
const CONNECTIONS: &str = "FlowBlaze 3.4";

/// Functions without a row are in no paper.
#[rustfmt::skip]
const ROWS: &[PaperRow] = &[
    PaperRow { function: "server_load_balancer", use_case: "Server Load Balancer", source: TABLE_3, elements: &[[2, 0, 1], [2, 1, 0]] },
    PaperRow { function: "udp_firewall", use_case: "UDP Stateful Firewall", source: TABLE_3, elements: &[[5, 0, 0]] },
    PaperRow { function: "port_knocking", use_case: "Port Knocking Firewall", source: TABLE_3, elements: &[[6, 0, 0]] },
    PaperRow { function: "flowlet", use_case: "Flowlet load balancer", source: TABLE_3, elements: &[[2, 1, 0], [4, 0, 2], [9, 0, 4]] },
    PaperRow { function: "policer", use_case: "Traffic Policer", source: TABLE_3, elements: &[[4, 2, 2]] },
    PaperRow { function: "big_flow", use_case: "Big Flow Detector", source: TABLE_3, elements: &[[3, 1, 0]] },
    PaperRow { function: "syn_flood", use_case: "SYN flood Detection and Mitigation", source: TABLE_3, elements: &[[4, 1, 0]] },
    PaperRow { function: "optimistic_ack", use_case: "TCP optimistic ACK detection", source: TABLE_3, elements: &[[8, 3, 0]] },
    PaperRow { function: "super_spreader", use_case: "TCP super spreader detection", source: TABLE_3, elements: &[[8, 1, 0]] },
    PaperRow { function: "dynamic_nat", use_case: "Dynamic NAT", source: TABLE_3, elements: &[[3, 1, 1], [4, 2, 0]] },
    PaperRow { function: "subscriber_quota", use_case: "vEPC subscriber's quota verification", source: TABLE_3, elements: &[[9, 1, 0]] },
    PaperRow { function: "paxos_coordinator", use_case: "Switch Paxos Coordinator", source: TABLE_3, elements: &[[1, 0, 1]] },
    PaperRow { function: "paxos_acceptor", use_case: "Switch Paxos Acceptor", source: TABLE_3, elements: &[[3, 3, 1]] },
    PaperRow { function: "kv_cache", use_case: "In-network KVS cache", source: TABLE_3, elements: &[[6, 2, 0]] },
    PaperRow { function: "conntrack_paper", use_case: "TCP connection tracking", source: CONNECTIONS, elements: &[[7, 7, 0], [29, 3, 0]] },
    PaperRow { function: "conntrack_paper_advancing", use_case: "TCP connection tracking, windows that advance", source: CONNECTIONS, elements: &[[7, 7, 0], [29, 3, 0]] },
    PaperRow { function: "conntrack_paper_fixed", use_case: "TCP connection tracking, one size of windows", source: CONNECTIONS, elements: &[[7, 7, 0], [29, 3, 0]] },
    PaperRow { function: "conntrack_paper_trusted", use_case: "TCP connection tracking, one side trusted", source: CONNECTIONS, elements: &[[7, 4, 0], [29, 3, 0]] },
];

pub(super) fn row(function: &str) -> Option<&'static PaperRow> {
    ROWS.iter().find(|row| row.function == function)
}
