// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions under test, and what the tests of engines share.
#![allow(unreachable_pub, missing_docs, clippy::panic, clippy::print_stderr)]

pub mod captures;
pub mod engines;
pub mod faulty;
pub mod random;
pub mod shipped;

use std::sync::Arc;

use flowloom_efsm::model::Function;

/// Port knocking: 5123, 6234, 7345, 8456, then port 22 is open.
pub fn knock() -> Arc<Function> {
    let text = "
function knock;

stateful knocks {
    key ip.src; size 64; sweep 1s;
    states closed, one, two, three, open;

    on closed when l4.dport == 5123 -> one (idle 1s) { drop; }
    on one when l4.dport == 6234 -> two (idle 1s) { drop; }
    on two when l4.dport == 7345 -> three (idle 1s) { drop; }
    on three when l4.dport == 8456 -> open (idle 60s) { drop; }
    on open when l4.dport == 22 stay { forward(2); }
    on one, two, three -> closed { drop; }
    otherwise { drop; }
}
";
    shipped::compiled("knock", text, &[])
}

/// Big flow detector: after `threshold` packets of a 5-tuple its packets are marked.
pub fn big_flow(threshold: u64) -> Arc<Function> {
    let text = "
function bigflow;

param threshold: u32;

stateful flows {
    key 5-tuple; size 64; sweep 1s;
    states small, big;
    reg packets: u32;

    on small when packets < threshold stay { packets += 1; forward(1); }
    on small when packets >= threshold -> big (idle 10s) { packets += 1; ip.tos = 1; forward(1); }
    on big stay { ip.tos = 1; forward(1); }
    otherwise { pass; }
}
";
    shipped::compiled("bigflow", text, &[("threshold".to_owned(), threshold.to_string())])
}

/// A mix of features: two elements, `biflow`, both timers, globals, signed registers, metadata, header writes, a small
/// table.
pub fn many_things() -> Arc<Function> {
    let text = "
function many;

meta way: u32;

stateful gate {
    key biflow(5-tuple); size 4; sweep 4ms;
    states new, open, closing;
    reg count: u32;
    reg last: u32;
    reg credit: i32;
    global flows: u32;

    # An inner host opens; a second register stores the port, a global counts flows.
    on new when tcp.is_syn == 1 && ipv4.src in 10.0.0.0/8 -> open (idle 1ms) {
        count = 1;
        last = l4.dport;
        flows += 1;
        way = 1;
        goto rewrite;
    }
    # The second register keeps the previous count.
    on open when count < 3 stay { count += 1; last = count; credit -= pkt.len; way = count; goto rewrite; }
    on open when count >= 3 -> closing (hard 2ms) { credit -= pkt.len; way = 2; goto rewrite; }
    on closing when credit < -100 -> new { count = 0; last = 0; credit = 0; drop; }
    on closing stay { credit -= pkt.len; reply; }
    on new when l4.dport in 53..81 && !(ipv4.src in 10.0.0.0/8) -> closing (idle 3ms, hard 5ms) { way = 2; goto rewrite; }
    otherwise { pass; }
}

stateless rewrite {
    when way == 1 { ipv4.src = 203.0.113.1; ip.ttl -= 1; forward(2); }
    when way == 2 { ip.tos = way; l4.dport = 8080; forward(way); }
    otherwise { drop; }
}
";
    shipped::compiled("many", text, &[])
}
