//! What every packet that enters an element has, by the rows that lead there: whoever asks whether a field can be absent
//! in an element need not look for packets that never come so far.

use std::collections::BTreeSet;

use flowloom_efsm::model::{Element, Function, Key, Terminal};
use flowloom_wire::Header;
use flowloom_wire::field::FieldId;

/// What a packet certainly has: of each of these sets of headers, one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known(BTreeSet<BTreeSet<Header>>);

impl Known {
    /// What packets have when they enter each element of `function`. What enters the first, or an element that nothing
    /// leads to, may have nothing.
    pub(crate) fn at_entries(function: &Function) -> Vec<Known> {
        let mut entries: Vec<Option<Known>> = vec![None; function.elements.len()];
        if let Some(first) = entries.first_mut() {
            *first = Some(Known::default());
        }
        // Elements lead only to later ones, so all ways into one are known when its turn comes.
        for (e, element) in function.elements.iter().enumerate() {
            let here = entries[e].get_or_insert_default().clone();
            let in_rows = here.with_key(element);
            let rows = element.rows.iter().map(|row| {
                let known = if row.actions.changes_frame() { Known::default() } else { in_rows.with(row.fields()) };
                (&row.actions.terminal, known)
            });
            let otherwise = std::iter::once((&element.otherwise.actions.terminal, here.clone()));
            for (terminal, known) in rows.chain(otherwise) {
                let Terminal::Goto(to) = terminal else { continue };
                let Some(entry) = entries.get_mut(usize::from(*to)) else { continue };
                *entry = Some(match entry.take() {
                    Some(other) => other.or(&known),
                    None => known,
                });
            }
        }
        entries.into_iter().map(|known| known.unwrap_or_default()).collect()
    }

    /// These, and the key of `element`: what a packet has that its rows are tried on.
    pub(crate) fn with_key(&self, element: &Element) -> Known {
        self.with(element.stateful.iter().flat_map(|s| &s.key).flat_map(Key::fields))
    }

    fn with(&self, more: impl IntoIterator<Item = FieldId>) -> Known {
        let one_of = more.into_iter().map(|field| field.headers().into_iter().collect());
        Known(self.0.iter().cloned().chain(one_of).filter(|one_of: &BTreeSet<_>| !one_of.is_empty()).collect())
    }

    /// What is certain where either this or `other` is, without what follows from the rest.
    fn or(&self, other: &Known) -> Known {
        let pairs: BTreeSet<BTreeSet<Header>> =
            self.0.iter().flat_map(|a| other.0.iter().map(move |b| a | b)).collect();
        let follows = |one: &BTreeSet<Header>| pairs.iter().any(|p| p != one && p.is_subset(one));
        Known(pairs.iter().filter(|one| !follows(one)).cloned().collect())
    }

    /// Whether `field` is certainly there.
    pub(crate) fn has(&self, field: FieldId) -> bool {
        let headers = field.headers();
        let gives = |header: &Header| {
            let below = below(*header);
            headers.contains(header) || !below.is_empty() && below.iter().all(|b| headers.contains(b))
        };
        headers.is_empty() || self.0.iter().any(|one_of| one_of.iter().all(gives))
    }
}

/// Headers of which one stands below `header`.
fn below(header: Header) -> &'static [Header] {
    match header {
        Header::Tcp | Header::Udp | Header::Icmp | Header::Icmp6 => &[Header::Ipv4, Header::Ipv6],
        _ => &[],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use flowloom_efsm::compile;

    use crate::{Reached, What};

    /// Whether packets without the key of element `b` can come there, the element before being as given.
    fn no_key_in_b(a: &str) -> bool {
        let text = format!("function f; {a} stateful b {{ key ip.src, l4.sport; states s; on s {{ pass; }} }}");
        let (function, _) = compile("f", &text, &[]).unwrap();
        let points = Reached::new(&function).points();
        points.iter().any(|p| p.element == "b" && p.what == What::NoKey)
    }

    #[test]
    fn a_key_that_all_ways_into_an_element_imply_is_never_absent() {
        assert!(!no_key_in_b("stateless a { when tcp.is_syn { goto b; } otherwise { pass; } }"));
        assert!(!no_key_in_b(
            "stateless a { when udp.dport == 53 { goto b; } when tcp.seq > 1 { goto b; } otherwise { drop; } }"
        ));
        assert!(!no_key_in_b("stateful a { key 5-tuple; states s; on s { goto b; } otherwise { pass; } }"));
    }

    #[test]
    fn a_key_that_one_way_does_not_imply_can_be_absent() {
        assert!(no_key_in_b(""));
        assert!(no_key_in_b("stateless a { when tcp.is_syn { goto b; } otherwise { goto b; } }"));
        assert!(no_key_in_b(
            "stateless a { when tcp.is_syn { goto b; } when ip.ttl > 1 { goto b; } otherwise { pass; } }"
        ));
        assert!(no_key_in_b("stateless a { when ipv4.ttl > 1 { goto b; } otherwise { pass; } }"));
        assert!(no_key_in_b("stateful a { key 5-tuple; states s; on s { goto b; } otherwise { goto b; } }"));
    }
}
