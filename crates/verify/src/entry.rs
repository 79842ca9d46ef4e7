// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of headers with which packets reach an element.
//!
//! A row forwards only packets that have every field it reads, and a stateful element only those that have its key. A
//! later element may therefore have a default for packets without its key that no packet can reach.

use std::collections::BTreeSet;

use flowloom_efsm::model::{Element, Function, Key, Row, Terminal};
use flowloom_wire::FieldId;
use flowloom_wire::graph::{ETHERNET, Graph};

/// For each element, the sets of headers of packets that can reach it, by `Header::bit`, limited to headers whose
/// fields the function names.
#[derive(Debug, Clone)]
pub(crate) struct Entries(Vec<BTreeSet<u32>>);

impl Entries {
    pub(crate) fn of(function: &Function) -> Entries {
        let rows = function.elements.iter().flat_map(|element| &element.rows);
        let named = rows.flat_map(Row::fields).chain(function.elements.iter().flat_map(key_fields));
        let needed = named.flat_map(FieldId::headers).fold(0, |bits, header| bits | header.bit());
        let any = parses(&function.graph, needed);
        let mut entries = vec![BTreeSet::new(); function.elements.len()];
        if let Some(first) = entries.first_mut() {
            *first = any.clone();
        }
        for (index, element) in function.elements.iter().enumerate() {
            let here = entries[index].clone();
            for row in &element.rows {
                let Terminal::Goto(to) = row.actions.terminal else { continue };
                if row.actions.steps.is_empty() {
                    let fields: Vec<FieldId> = row.fields().into_iter().chain(key_fields(element)).collect();
                    let sent = here.iter().filter(|&&valid| fields.iter().all(|&field| has(valid, field)));
                    entries[usize::from(to)].extend(sent);
                } else {
                    // A write may have changed the headers of the frame.
                    entries[usize::from(to)].extend(&any);
                }
            }
            if let Terminal::Goto(to) = element.otherwise.actions.terminal {
                entries[usize::from(to)].extend(&here);
            }
        }
        Entries(entries)
    }

    /// True if packets that lack a field of the key can reach element number `index`.
    pub(crate) fn can_lack_key(&self, index: usize, element: &Element) -> bool {
        key_fields(element).any(|field| self.0[index].iter().any(|&valid| !has(valid, field)))
    }

    /// True if every packet that reaches element number `index` with a key has the field.
    pub(crate) fn always_has(&self, index: usize, element: &Element, field: FieldId) -> bool {
        let keyed = self.0[index].iter().filter(|&&valid| key_fields(element).all(|field| has(valid, field)));
        keyed.into_iter().all(|&valid| has(valid, field))
    }
}

fn key_fields(element: &Element) -> impl Iterator<Item = FieldId> {
    element.stateful.iter().flat_map(|stateful| &stateful.key).flat_map(Key::fields)
}

fn has(valid: u32, field: FieldId) -> bool {
    let headers = field.headers();
    headers.is_empty() || headers.iter().any(|header| valid & header.bit() != 0)
}

/// Subsets of the `needed` headers that a packet can have.
fn parses(graph: &Graph, needed: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([0]);
    let mut seen = BTreeSet::new();
    let mut worklist = vec![(ETHERNET, 0)];
    while let Some((index, before)) = worklist.pop() {
        if seen.insert((index, before)) {
            let node = &graph.nodes()[index];
            for after in node.valid_after(before).map(|valid| valid & needed) {
                found.insert(after);
                worklist.extend(node.next.successors().map(|to| (to, after)));
            }
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_efsm::compile;

    /// For each element, true if packets without its key can reach it.
    fn can_lack_keys(text: &str) -> Vec<bool> {
        let (function, _) = compile("test.efsm", text, &[]).unwrap();
        let entries = Entries::of(&function);
        function.elements.iter().enumerate().map(|(i, element)| entries.can_lack_key(i, element)).collect()
    }

    const COUNT: &str = "states s; reg n: u32; on s { n += 1; pass; }";

    #[test]
    fn a_key_is_present_after_an_element_with_the_same_key() {
        let first = "stateful a { key biflow(ip.src, ip.dst, tcp.sport, tcp.dport); states s; on s { goto b; } }";
        let text = |key: &str| format!("function f; {first} stateful b {{ key {key}; {COUNT} }}");
        assert_eq!(can_lack_keys(&text("tcp.sport")), [true, false]);
        // TCP is parsed after IP only.
        assert_eq!(can_lack_keys(&text("ip.src")), [true, false]);
        assert_eq!(can_lack_keys(&text("ipv4.src")), [true, true]);
        assert_eq!(can_lack_keys(&text("none")), [true, false]);
    }

    #[test]
    fn a_row_forwards_packets_with_the_fields_it_reads() {
        let text = |rows: &str| format!("function f; stateless a {{ {rows} }} stateful b {{ key ip.src; {COUNT} }}");
        assert_eq!(can_lack_keys(&text("when udp.dport == 53 { goto b; }")), [false, false]);
        assert_eq!(can_lack_keys(&text("when pkt.len > 60 { goto b; }")), [false, true]);
        assert_eq!(can_lack_keys(&text("when ip.ttl > 1 { drop; } otherwise { goto b; }")), [false, true]);
    }
}
