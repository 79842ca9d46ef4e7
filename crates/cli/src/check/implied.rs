// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notes on the implicit `otherwise { drop; }` of an element.

use flowloom_efsm::model::{Element, Function};
use flowloom_wire::Header;

/// Common packets, each with the headers it has among those that keys read most.
const COMMON_PACKETS: [(&str, &[Header]); 3] = [
    ("ARP", &[Header::Ethernet]),
    ("ICMP", &[Header::Ethernet, Header::Ipv4, Header::Ipv6, Header::Icmp, Header::Icmp6]),
    ("all fragments but the first", &[Header::Ethernet, Header::Ipv4, Header::Ipv6]),
];

/// Returns a note for each element that drops common packets because it has no `otherwise` and they lack a key field.
pub(super) fn notes(function: &Function) -> Vec<String> {
    function.elements.iter().filter_map(note).collect()
}

fn note(element: &Element) -> Option<String> {
    let key = element.stateful.as_ref()?.key.as_ref()?;
    // An implicit `otherwise` has the span of its element.
    if element.otherwise.span != element.span {
        return None;
    }
    let lacks = |has: &[Header]| {
        key.fields().any(|field| {
            let any = field.headers();
            !any.is_empty() && !any.iter().any(|header| has.contains(header))
        })
    };
    let dropped: Vec<&str> = COMMON_PACKETS.iter().filter(|(_, has)| lacks(has)).map(|(name, _)| *name).collect();
    let (last, others) = dropped.split_last()?;
    let list = if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) };
    Some(format!(
        "`{}` has no `otherwise`: packets that lack a field of its key are dropped, such as {list}",
        element.name
    ))
}
